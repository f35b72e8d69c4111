"""All live collectors of one recording, none of which can stop the program or lose the capture."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gpuprof.collectors.live.collected import (
    Collected,
    CollectedBy,
    missing_sentence,
    tables_of,
)
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
        # Each with whether it says nothing about a program that uses no GPU.
        self._failures: list[tuple[bool, Note]] = []

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

    def stop(self) -> tuple[CollectedBy, ...]:
        """Stop every collector. What each has recorded, as another process can be given it."""
        parts = []
        for row, collector in self._collectors:
            tables = self._try(row, "gave no rows", partial(_stopped, collector))
            if tables:
                parts.append(CollectedBy(row.name, row.subject, row.needs_gpu, tables))
        return tuple(parts)

    def stop_into_tables(self) -> "dict[str, pl.DataFrame]":
        """Stop every collector. The rows of all, by table."""
        return tables_of(self.stop(), self._fail)

    def notes(self, *, gpu_in_use: bool) -> tuple[Note, ...]:
        """What could not be recorded so far, of what matters to a program that uses a GPU or not.

        A collector's failure to start or stop comes first.
        """
        found = [*self._failures]
        for row, collector in self._collectors:
            found += [(row.needs_gpu, note) for note in list(collector.notes)]
        return tuple(note for needs_gpu, note in found if gpu_in_use or not needs_gpu)

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
            sentence = missing_sentence(row.name, failing, row.subject, error)
            self._failures.append((row.needs_gpu, Note(sentence)))
            return None

    def _fail(self, part: CollectedBy, sentence: str) -> None:
        self._failures.append((part.needs_gpu, Note(sentence)))


def _started(row: CollectorRow, scope: Scope) -> LiveCollector:
    collector = row.make(scope)
    collector.start()
    return collector


def _stopped(collector: LiveCollector) -> Collected:
    return dict(collector.stop())
