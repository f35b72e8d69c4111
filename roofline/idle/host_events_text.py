"""What gpuprof recorded of the host, in words: compilations and batches of DataLoaders."""

from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl

from gpuprof.collectors.host_events import Compilation, HostEvent, LoaderStart, NextBatch, decode
from gpuprof.collectors.place_text import place_text
from gpuprof.roofline.host_figures import LoaderCause, LoaderWait

# What whoever loads does for most of the time.
_CAUSES: Final[Mapping[LoaderCause, str]] = {
    "transform": "computing",
    "reading": "reading from storage",
    "waiting": "waiting, not for storage",
    "core": "waiting for a core",
    "unknown": "",
}


def described(scopes: pl.DataFrame, loaders: Iterable[LoaderWait]) -> pl.DataFrame:
    """For each of `scopes`, ranges with a column host_event, what it is, its place and a detail.

    Columns what, place and detail; the last two are null where nothing more was recorded than a
    name. `loaders` are those of the capture.
    """
    who = {(one.workers, one.pinned): _who(one) for one in loaders}
    rows = [
        _words(name, None if text is None else decode(text), who)
        for name, text in scopes.select("name", "host_event").iter_rows()
    ]
    return pl.DataFrame(
        rows, schema=dict.fromkeys(("what", "place", "detail"), pl.String), orient="row"
    )


def _words(
    name: str, event: HostEvent | None, who: Mapping[tuple[int | None, bool | None], str]
) -> tuple[str, str | None, str | None]:
    if isinstance(event, Compilation):
        verb = "compiles again" if event.recompiled else "compiles"
        what = f"{verb} {event.function}{' (backward)' if event.backward else ''}"
        return what, place_text(event.file, event.line) or None, event.guard or event.failure
    if isinstance(event, NextBatch):
        place = place_text(event.file, event.line) or None
        return "next batch of a DataLoader", place, who.get((event.workers, event.pinned))
    if isinstance(event, LoaderStart):
        return "start of a DataLoader", None, who.get((event.workers, event.pinned))
    return name, None, None


def _who(loader: LoaderWait) -> str:
    """Who loads, and what that takes: "2 workers, computing"."""
    who = f"{loader.workers} worker{'' if loader.workers == 1 else 's'}"
    if loader.workers == 0:
        who = "no workers: the program loads itself"
    cause = _CAUSES[loader.cause]
    return f"{who}, {cause}" if cause else who
