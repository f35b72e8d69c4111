"""All live collectors of one recording, none of which can stop the program or lose the capture."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gpuprof.collectors.errors import reason
from gpuprof.collectors.live.collector import CollectorRow, LiveCollector, Note, Scope
from gpuprof.collectors.live.roster import COLLECTORS, roster
from gpuprof.collectors.live.script_errors import is_ours
from gpuprof.collectors.plugins import PluginUse, uses_of

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")


class LiveCollection:
    """The collectors of `rows`, all of the roster if None, started and stopped together.

    Nothing here raises because of a collector: what one does wrong is one note, and the others
    go on.
    """

    def __init__(self, scope: Scope, rows: Sequence[CollectorRow] | None = None) -> None:
        self._scope = scope
        self._rows = roster() if rows is None else rows
        self._collectors: list[tuple[CollectorRow, LiveCollector]] = []
        self._failures: list[tuple[CollectorRow, Note]] = []

    def start(self) -> None:
        """Make and start every collector. One that does not start is left out."""
        for row in self._rows:
            collector = self._try(row, "did not start", partial(_started, row, self._scope))
            if collector is not None:
                self._collectors.append((row, collector))

    def slow_down(self) -> None:
        """The part of the run that matters is over."""
        for row, collector in self._collectors:
            self._try(row, "did not slow down", collector.slow_down)

    def stop(self) -> "dict[str, pl.DataFrame]":
        """Stop every collector. The rows of all, by table."""
        frames: dict[str, list[pl.DataFrame]] = {}
        for row, collector in self._collectors:
            tables = self._try(row, "gave no rows", partial(_stopped, collector))
            for name, frame in (tables or {}).items():
                frames.setdefault(name, []).append(frame)
        return {name: _concatenated(parts) for name, parts in frames.items()}

    def notes(self, *, gpu_in_use: bool) -> tuple[Note, ...]:
        """What could not be recorded so far, of what matters to a program that uses a GPU or not.

        A collector's failure to start or stop comes first.
        """
        found = [*self._failures]
        for row, collector in self._collectors:
            found += [(row, note) for note in list(collector.notes)]
        return tuple(note for row, note in found if gpu_in_use or not row.needs_gpu)

    def plugins(self) -> tuple[PluginUse, ...]:
        """Those of the collectors that plug-ins added and that started."""
        origins = {plugin.value.name: plugin.origin for plugin in COLLECTORS.load()}
        started = [row.name for row, _ in self._collectors]
        return uses_of(COLLECTORS.adds, ((origins.get(name), name) for name in started))

    def _try(self, row: CollectorRow, failing: str, step: Callable[[], T]) -> T | None:
        try:
            return step()
        except BaseException as error:
            if not is_ours(error):
                raise
            sentence = f"{row.name} {failing}, so {row.subject} is missing: {reason(error)}"
            self._failures.append((row, Note(sentence)))
            return None


def _started(row: CollectorRow, scope: Scope) -> LiveCollector:
    collector = row.make(scope)
    collector.start()
    return collector


def _concatenated(frames: "Sequence[pl.DataFrame]") -> "pl.DataFrame":
    # Where nothing was recorded the library stays out of the program.
    import polars as pl

    return pl.concat(frames)


def _stopped(collector: LiveCollector) -> "dict[str, pl.DataFrame]":
    tables = collector.stop()
    if len(tables) == 0:
        return {}
    from gpuprof.collectors import schema

    return {name: schema.conform(name, frame) for name, frame in tables.items()}
