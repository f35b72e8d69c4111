"""What gpuprof recorded of the host, in words: compilations and batches of DataLoaders."""

from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl

from gpuprof.collectors.host_events import (
    Compilation,
    HostEvent,
    LoaderWorkers,
    NextBatch,
    decode,
)
from gpuprof.collectors.place_text import place_text

# Of the time of a batch: more of it on a core is work, more bytes from storage are reading.
_MUCH: Final = 0.5
_READING_BYTES: Final = 1_000_000


def described(scopes: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """For each of `scopes`, ranges with a column host_event, what it is, its place and a detail.

    Columns what, place and detail; the last two are null where nothing more was recorded than a
    name. `ranges` are all of the capture, for what the workers of loaders did.
    """
    events = [None if text is None else decode(text) for text in scopes["host_event"]]
    lengths = (scopes["end_ns"] - scopes["start_ns"]).fill_null(0).to_list()
    batches = [
        (event, length)
        for event, length in zip(events, lengths, strict=True)
        if isinstance(event, NextBatch)
    ]
    loaders = _loaders(batches, _workers(ranges))
    rows = [
        _words(name, event, loaders) for name, event in zip(scopes["name"], events, strict=True)
    ]
    return pl.DataFrame(
        rows, schema=dict.fromkeys(("what", "place", "detail"), pl.String), orient="row"
    )


def _words(
    name: str, event: HostEvent | None, loaders: Mapping[int, str]
) -> tuple[str, str | None, str | None]:
    if isinstance(event, Compilation):
        verb = "compiles again" if event.recompiled else "compiles"
        what = f"{verb} {event.function}{' (backward)' if event.backward else ''}"
        place = place_text(event.file, event.line) or None
        return what, place, event.guard or event.failure
    if isinstance(event, NextBatch):
        return "next batch of a DataLoader", None, loaders[event.workers]
    return name, None, None


def _loaders(
    batches: Iterable[tuple[NextBatch, int]], workers: Iterable[tuple[LoaderWorkers, int]]
) -> dict[int, str]:
    """What loaders with so many workers do while a batch is waited for, in words."""
    found: dict[int, list[tuple[NextBatch, int]]] = {}
    for batch, length_ns in batches:
        found.setdefault(batch.workers, []).append((batch, length_ns))
    return {
        number: _own_work(own) if number == 0 else _work_of_workers(number, workers)
        for number, own in found.items()
    }


def _own_work(batches: Iterable[tuple[NextBatch, int]]) -> str:
    batches = list(batches)
    said = "no workers: the program loads itself"
    whole_ns = sum(length_ns for _, length_ns in batches)
    on_core = _sum(batch.cpu_ns for batch, _ in batches)
    return said + _activity(on_core, whole_ns, _sum(one.storage_bytes for one, _ in batches))


def _work_of_workers(number: int, workers: Iterable[tuple[LoaderWorkers, int]]) -> str:
    said = f"{number} worker{'' if number == 1 else 's'}"
    own = [(one, length_ns) for one, length_ns in workers if one.workers == number]
    whole_ns = sum(one.workers * length_ns for one, length_ns in own)
    on_core = _sum(one.cpu_ns for one, _ in own)
    return said + _activity(on_core, whole_ns, _sum(one.storage_bytes for one, _ in own))


def _activity(on_core_ns: int | None, whole_ns: int, storage_bytes: int | None) -> str:
    """What the time went to, as far as the system counted."""
    if on_core_ns is None or not whole_ns:
        return ""
    share = min(1.0, on_core_ns / whole_ns)
    said = f", on a core for {share:.0%} of the time"
    if share < _MUCH and storage_bytes is not None and storage_bytes >= _READING_BYTES:
        said += f", with {storage_bytes / 1e6:.0f} MB read from storage"
    return said


def _workers(ranges: pl.DataFrame) -> list[tuple[LoaderWorkers, int]]:
    rows = ranges.drop_nulls("host_event").select("host_event", "start_ns", "end_ns").iter_rows()
    decoded = ((decode(text), end_ns - start_ns) for text, start_ns, end_ns in rows)
    return [(event, length) for event, length in decoded if isinstance(event, LoaderWorkers)]


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum where all are known and there are any."""
    known = list(values)
    return None if not known or None in known else sum(value or 0 for value in known)
