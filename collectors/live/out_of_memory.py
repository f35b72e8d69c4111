"""What memory held each time that torch's CUDA allocator had no more."""

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuprof.collectors.errors import reason
from gpuprof.collectors.live.collected import Collected
from gpuprof.collectors.live.collector import Availability, Note, Scope
from gpuprof.collectors.live.script_errors import is_ours
from gpuprof.collectors.live.unix_clock import unix_ns

COLUMNS: Final = ("time_ns", "device", "asked", "limit", "free", "stack")
# A program that tries batches until one fits fails often, and each look takes as long as a step.
_LOOKING_NS: Final = 5_000_000_000
_DEEPEST_STACK: Final = 100
# A program may go on like that for days: the first of them are kept, and the last one.
_MOST_FAILURES: Final = 1000
# Seen on an H200 with torch 2.11.
_STACKS_KEPT: Final = (
    "every allocation kept its Python stack (--memory), in timed steps too: a step of 400 small "
    "operators takes 10 % longer with it"
)


def find_observer() -> Availability:
    """Whether this torch tells of allocations that fail."""
    import torch

    if not hasattr(torch._C, "_cuda_attach_out_of_memory_observer"):
        return Availability(False, "this torch has no CUDA", "install a build of torch with CUDA")
    return Availability(True, "torch tells of allocations that fail")


def make_observer(scope: Scope) -> "OutOfMemoryObserver":
    """The collector of all devices of this process."""
    return OutOfMemoryObserver(scope.rank, stacks=scope.memory_stacks)


class OutOfMemoryObserver:
    """A `LiveCollector` of allocations that fail, and of what was allocated at the last of them."""

    def __init__(self, rank: int = 0, *, stacks: bool = False) -> None:
        """With `stacks` torch keeps the Python stack of each allocation while it lives."""
        self.notes: list[Note] = []
        self._stacks = stacks
        self._failures: list[dict[str, Any]] = []
        self._blocks: list[dict[str, Any]] = []
        self._rank = rank
        self._process = os.getpid()
        self._looked_ns = 0
        self._running = False

    def start(self) -> None:
        """See `LiveCollector`. torch is asked to tell once the program uses a GPU."""
        if not find_observer().available:
            return
        import torch

        self._running = True
        cuda: Any = torch.cuda
        cuda._lazy_call(self._attach)

    def slow_down(self) -> None:
        """See `LiveCollector`."""

    def stop(self) -> Collected:
        """See `LiveCollector`."""
        self._running = False
        if not self._failures or os.getpid() != self._process:
            return {}
        tables = {"out_of_memory": self._failures, "memory_blocks": self._blocks}
        return {name: _columns(rows) for name, rows in tables.items() if rows}

    def _attach(self) -> None:
        import torch

        bindings: Any = torch._C
        try:
            # torch keeps an observer for ever.
            bindings._cuda_attach_out_of_memory_observer(self._failed)
            if self._stacks:
                torch.cuda.memory._record_memory_history(enabled="state", stacks="python")
                self.notes.append(Note(_STACKS_KEPT))
        # The program is about to use its GPU for the first time, and must.
        except BaseException as error:
            self._note(error)

    def _failed(self, device: int, asked: int, limit: int, free: int) -> None:
        """torch calls this on the allocating thread, before it raises."""
        if not self._running or os.getpid() != self._process:
            return
        try:
            row = {"rank": self._rank, "time_ns": unix_ns(), "device": device}
            row |= {"asked": asked, "limit": limit, "free": free}
            if len(self._failures) == _MOST_FAILURES:
                self._failures.pop()
            self._failures.append({**row, "stack": _stack()})
            self._blocks = self._look() if self._looked_ns < _LOOKING_NS else []
        # What came out of here would be raised in place of torch's own error.
        except BaseException as error:
            self._note(error)

    def _note(self, error: BaseException) -> None:
        if not is_ours(error):
            raise error
        self.notes.append(Note(f"what memory held when it ran out is missing: {reason(error)}"))

    def _look(self) -> list[dict[str, Any]]:
        from gpuprof.collectors.live.memory_blocks import blocks_now

        began_ns = time.monotonic_ns()
        blocks = [{"rank": self._rank, **block} for block in blocks_now("out of memory")]
        self._looked_ns += time.monotonic_ns() - began_ns
        return blocks


def _columns(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    """`rows`, of which some lack what is not known of them, as columns."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _stack() -> str:
    """The program's Python frames, innermost first, as lines "file:line function".

    A thread of autograd has none: then those of the main thread, which waits for it.
    """
    # This function and the observer are ours.
    frame = sys._getframe(1).f_back
    if frame is None:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
    lines: list[str] = []
    working_folder = os.path.join(os.getcwd(), "")
    while frame is not None and len(lines) < _DEEPEST_STACK:
        code = frame.f_code
        file = code.co_filename.removeprefix(working_folder)
        lines.append(f"{file}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return "\n".join(lines)
