"""What the program's DataLoaders do while a profile runs: each batch asked for, and their workers.

torch's profiler has a range around each batch (`enumerate(DataLoader)#...__next__`). What it does
not have is whether anybody works meanwhile: the asking thread itself, worker processes, or nobody,
because a disk or a network is waited for. The system counts that, so it is read before and after:
of the asking thread for each batch, of workers once at their first batch and once at the end.
"""

import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from gpuprof.collectors.host_events import HostEvent, LoaderWorkers, NextBatch, range_row
from gpuprof.collectors.live.process_counts import ProcessCounts, counts_of
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.live.script_errors import is_ours
from gpuprof.collectors.live.unix_clock import unix_ns

_MODULE: Final = "torch.utils.data.dataloader"
_NOTHING: Final = ProcessCounts(0, 0, 0, 0)


@dataclass(frozen=True)
class _Team:
    """The workers of one iterator when it was first asked for a batch."""

    iterator: Callable[[], Any]
    processes: tuple[int, ...]
    thread: int
    start_ns: int
    counts: tuple[ProcessCounts, ...]

    def event(self) -> LoaderWorkers:
        """What they did until now."""
        done = _NOTHING
        for process, before in zip(self.processes, self.counts, strict=True):
            done = done.plus(counts_of(process).since(before))
        return LoaderWorkers(workers=len(self.processes), **asdict(done))


class LoaderWaits:
    """A `ProfileRecorder` of batches that DataLoaders were asked for."""

    subject = "data loaders"

    def __init__(self) -> None:
        self._recording = False
        self._undo: Callable[[], None] = _nothing
        self._rows: list[dict[str, object]] = []
        self._teams: dict[int, _Team] = {}

    def start(self) -> None:
        """See `ProfileRecorder`."""
        self._rows, self._teams = [], {}
        module = sys.modules.get(_MODULE)
        iterators: Any = getattr(module, "_BaseDataLoaderIter", None)
        if iterators is None:
            return
        original = iterators.__next__

        def next_batch(iterator: Any) -> Any:
            if not self._recording:
                return original(iterator)
            # A dataset may itself ask a loader: the outer batch holds the inner one.
            start_ns, before = unix_ns(), counts_of()
            try:
                return original(iterator)
            finally:
                self._note_safely(iterator, start_ns, unix_ns(), counts_of().since(before))

        iterators.__next__ = next_batch

        def undo() -> None:
            # Whoever put its own in place of ours meanwhile goes on calling ours.
            if iterators.__next__ is next_batch:
                iterators.__next__ = original

        self._undo, self._recording = undo, True

    def stop(self) -> Rows:
        """See `ProfileRecorder`."""
        self._undo()
        self._undo, self._recording = _nothing, False
        end_ns = unix_ns()
        for team in self._teams.values():
            if team.iterator() is not None:
                self._add(team.event(), team.thread, team.start_ns, end_ns)
        rows, self._rows, self._teams = self._rows, [], {}
        return {"ranges": rows}

    def _note_safely(self, iterator: Any, start_ns: int, end_ns: int, done: ProcessCounts) -> None:
        try:
            self._note(iterator, start_ns, end_ns, done)
        except BaseException as error:
            if not is_ours(error):
                raise

    def _note(self, iterator: Any, start_ns: int, end_ns: int, done: ProcessCounts) -> None:
        thread = threading.get_native_id()
        workers = int(getattr(iterator, "_num_workers", 0))
        pinned = bool(getattr(iterator, "_pin_memory", False))
        batch = NextBatch(workers=workers, pinned=pinned, **asdict(done))
        self._add(batch, thread, start_ns, end_ns)
        if workers and id(iterator) not in self._teams:
            processes = tuple(
                worker.pid for worker in getattr(iterator, "_workers", ()) if worker.pid
            )
            self._teams[id(iterator)] = _Team(
                weakref.ref(iterator),
                processes,
                thread,
                unix_ns(),
                tuple(counts_of(process) for process in processes),
            )

    def _add(self, event: HostEvent, thread: int, start_ns: int, end_ns: int) -> None:
        self._rows.append(range_row(event, thread=thread, start_ns=start_ns, end_ns=end_ns))


def _nothing() -> None:
    pass
