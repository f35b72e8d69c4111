"""What the program's DataLoaders do while a profile runs: each batch asked for, and their workers.

torch's profiler has a range around each batch (`enumerate(DataLoader)#...__next__`). What it does
not have is whether anybody works meanwhile: the asking thread itself, worker processes, or nobody,
because a disk or a network is waited for. The system counts that, so it is read before and after:
of the asking thread for each batch, of workers once at their first batch and once at the end.
"""

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, Final

from gpuprof.collectors.host_events import (
    HostEvent,
    LoaderStart,
    LoaderWorkers,
    NextBatch,
    range_row,
)
from gpuprof.collectors.live.process_counts import ProcessCounts, counts_of
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.live.program_files import ProgramFiles
from gpuprof.collectors.live.replaced import replace
from gpuprof.collectors.live.script_errors import hiding_our_errors
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
    # Batches that were ready and not asked for yet; None where nobody can tell.
    ready: int | None

    def event(self, asked: int) -> LoaderWorkers:
        """What they did until now, when `asked` more batches have been."""
        done = _NOTHING
        for process, before in zip(self.processes, self.counts, strict=True):
            done = done.plus(counts_of(process).since(before))
        now = _ready(self.iterator())
        batches = None if now is None or self.ready is None else asked + now - self.ready
        return LoaderWorkers(workers=len(self.processes), batches=batches, **asdict(done))


class LoaderWaits:
    """A `ProfileRecorder` of batches that DataLoaders were asked for."""

    subject = "data loaders"

    def __init__(self) -> None:
        self._recording = False
        self._undo: tuple[Callable[[], None], ...] = ()
        self._rows: list[dict[str, object]] = []
        self._teams: dict[int, _Team] = {}
        # Batches that each iterator was asked for after its first one.
        self._asked: Counter[int] = Counter()
        self._files: ProgramFiles | None = None

    def start(self) -> None:
        """See `ProfileRecorder`."""
        self._rows, self._teams, self._asked = [], {}, Counter()
        module: Any = sys.modules.get(_MODULE)
        iterators: Any = getattr(module, "_BaseDataLoaderIter", None)
        if iterators is None:
            return
        loaders: Any = module.DataLoader
        thread = threading.get_native_id()
        original, original_iter = iterators.__next__, loaders.__iter__

        def next_batch(iterator: Any) -> Any:
            # A thread of its own that fetches ahead makes no step wait.
            if not self._recording or threading.get_native_id() != thread:
                return original(iterator)
            # A dataset may itself ask a loader: the outer batch holds the inner one.
            asked = sys._getframe(1)
            start_ns, before = unix_ns(), counts_of()
            try:
                return original(iterator)
            finally:
                done, end_ns = counts_of().since(before), unix_ns()
                with hiding_our_errors():
                    self._note(iterator, asked, start_ns, end_ns, done)

        def begin(loader: Any) -> Any:
            start_ns = unix_ns()
            iterator = original_iter(loader)
            if self._recording and threading.get_native_id() == thread:
                with hiding_our_errors():
                    self._note_start(iterator, start_ns, unix_ns())
            return iterator

        undo_next = replace(iterators, __next__=next_batch)
        undo_iter = replace(loaders, __iter__=begin)
        self._undo, self._recording = (undo_next, undo_iter), True

    def stop(self) -> Rows:
        """See `ProfileRecorder`."""
        for undo in self._undo:
            undo()
        self._undo, self._recording = (), False
        end_ns = unix_ns()
        for number, team in self._teams.items():
            if team.iterator() is not None:
                event = team.event(self._asked[number])
                self._add(event, team.thread, team.start_ns, end_ns)
        rows, self._rows, self._teams = self._rows, [], {}
        return {"ranges": rows}

    def _place(self, frame: FrameType | None) -> tuple[str | None, int | None]:
        """The innermost line of the program's own files, from `frame` outwards."""
        if self._files is None:
            self._files = ProgramFiles()
        while frame is not None:
            name = self._files.name(frame.f_code, frame.f_globals)
            if name:
                return name, frame.f_lineno
            frame = frame.f_back
        return None, None

    def _note_start(self, iterator: Any, start_ns: int, end_ns: int) -> None:
        workers, pinned = _kind(iterator)
        event = LoaderStart(workers=workers, pinned=pinned)
        self._add(event, threading.get_native_id(), start_ns, end_ns)

    def _note(
        self, iterator: Any, asked: FrameType, start_ns: int, end_ns: int, done: ProcessCounts
    ) -> None:
        thread = threading.get_native_id()
        workers, pinned = _kind(iterator)
        file, line = self._place(asked)
        batch = NextBatch(workers=workers, pinned=pinned, file=file, line=line, **asdict(done))
        self._add(batch, thread, start_ns, end_ns)
        if id(iterator) in self._teams:
            self._asked[id(iterator)] += 1
        elif workers:
            processes = tuple(
                worker.pid for worker in getattr(iterator, "_workers", ()) if worker.pid
            )
            self._teams[id(iterator)] = _Team(
                weakref.ref(iterator),
                processes,
                thread,
                unix_ns(),
                tuple(counts_of(process) for process in processes),
                _ready(iterator),
            )

    def _add(self, event: HostEvent, thread: int, start_ns: int, end_ns: int) -> None:
        self._rows.append(range_row(event, thread=thread, start_ns=start_ns, end_ns=end_ns))


def _ready(iterator: Any) -> int | None:
    """Batches that its workers have made and nobody took yet.

    In the queue of the workers, in that of the thread that pins, and those that came too early
    (pytorch torch/utils/data/dataloader.py, _MultiProcessingDataLoaderIter).
    """
    try:
        queues = {id(each): each for each in (iterator._worker_result_queue, iterator._data_queue)}
        early = sum(len(task) > 1 for task in iterator._task_info.values())
        return int(sum(each.qsize() for each in queues.values())) + early
    except (AttributeError, NotImplementedError, OSError):
        # Another torch, or a system that does not count what is in its queues.
        return None


def _kind(iterator: Any) -> tuple[int, bool]:
    """How many workers, and whether they put batches into page-locked memory."""
    workers, pinned = getattr(iterator, "_num_workers", 0), getattr(iterator, "_pin_memory", False)
    return int(workers), bool(pinned)
