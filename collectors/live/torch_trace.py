"""Runs torch.profiler over some steps, or from a start to a stop, and writes its trace to a file.

torch allows one profiler in a process. When the script starts its own while ours runs, ours gives
way; while the script's runs, ours does not start.
"""

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from gpuprof.collectors.live import cpp_log_level, cuda, cupti_teardown
from gpuprof.collectors.live.cupti_holders import cupti_holder
from gpuprof.collectors.live.flight_recorder import write_collectives
from gpuprof.collectors.live.nvtx_marks import tool_listens
from gpuprof.collectors.live.tensor_lists import write_tensor_lists

# Ids of the profilers that this module runs, to tell them from the script's own.
own_profilers: set[int] = set()


def script_is_profiling() -> bool:
    """Whether a profiler that is not ours records in this process."""
    # Not torch's flag of a thread: where a profiler is stopped inside of what autograd runs (a
    # hook, a checkpointed module), autograd brings back the state in which that began.
    return torch.autograd.profiler._is_profiler_enabled and not own_profilers


# Those that record, of which one that began on another thread can only be ended there.
_running: list["TorchTrace"] = []
# Those that another one took torch's profiler from, on their own thread: they record to the end.
overtaken: list["TorchTrace"] = []


def records_steps() -> bool:
    """Whether a profile of steps runs, which has to go on and end on its thread."""
    return any(trace.of_steps for trace in _running)


class TorchTrace:
    """One use of torch.profiler.

    With `steps`, call `step()` at every boundary: the first step after `start()` warms the
    profiler up and is not recorded, the next `steps` are. Without, everything between `start()`
    and `stop()` is recorded. With `allocations` the trace also has what allocators do.
    """

    def __init__(self, path: Path, *, steps: int | None, allocations: bool = False) -> None:
        self.path = path
        self.complete = False
        self._saved = self._exported = False
        self._thread: int | None = None
        self._steps_left = None if steps is None else steps + 1
        self._restore_log_level: Callable[[], None] | None = None
        # Where the level cannot be set, torch would complain on the script's stderr.
        self._allocations = allocations and cpp_log_level.can_be_set()
        activities = [ProfilerActivity.CPU]
        # The tool that records the device's work instead, where there is one.
        self.cupti_held_by = cupti_held_by()
        if torch.cuda.is_available() and self.cupti_held_by is None:
            activities.append(ProfilerActivity.CUDA)
        self._window_is_open = False
        self._profiler = torch.profiler.profile(
            activities=activities,
            record_shapes=True,
            profile_memory=self._allocations,
            schedule=None
            if steps is None
            else torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
        )

    def start(self) -> None:
        """Begin on the calling thread; `step` and `stop` must be called on the same one."""
        cupti_teardown.ask()
        self._thread = threading.get_ident()
        if self._steps_left is not None and tool_listens() and cuda.in_use():
            # It may have been told to record only what stands between these two calls.
            cuda.start_other_profiler()
            self._window_is_open = True
        _overtake()
        own_profilers.add(id(self._profiler))
        _running.append(self)
        with _without_warnings(), _without_compilers():
            self._profiler.start()

    @property
    def of_steps(self) -> bool:
        """Whether it records so many steps, and not from a start to a stop."""
        return self._steps_left is not None

    @property
    def can_stop_here(self) -> bool:
        """Whether the calling thread is the one that started it, and no other one began since."""
        return self._thread == threading.get_ident() and self not in overtaken

    def step(self) -> None:
        """A step boundary. After the last recorded step the trace is complete."""
        assert self._steps_left is not None
        self._steps_left -= 1
        if self._steps_left == 0:
            self.stop()
            self.complete = True
        else:
            self._log_errors_only()
            # torch 2.6 begins to record, and looks at inductor, in the step after the warm-up.
            with _without_warnings(), _without_compilers():
                self._profiler.step()

    def stop(self) -> None:
        """End the recording; `export` can follow."""
        if id(self._profiler) in own_profilers:
            with _without_warnings(), cupti_teardown.awaited():
                self._profiler.stop()
            own_profilers.discard(id(self._profiler))
            _running.remove(self)
        if self._window_is_open:
            self._window_is_open = False
            cuda.stop_other_profiler()
        if self._restore_log_level is not None:
            self._restore_log_level()
            self._restore_log_level = None

    def _log_errors_only(self) -> None:
        """While allocations are recorded torch warns of each block in main memory that is older.

        Whatever else of torch warns in these steps did so in those before them.
        """
        if self._allocations and self._restore_log_level is None:
            self._restore_log_level = cpp_log_level.errors_only()

    def export(self) -> Path:
        """Write the trace as Kineto JSON, what it leaves out beside it, and return its path.

        Once; later calls return the same.
        """
        if self._exported:
            return self.path
        # torch refuses to save a trace again, and what a signal raises may end this just after.
        if not self._saved:
            self._saved = True
            self._profiler.export_chrome_trace(str(self.path))
        recorded = self._profiler.profiler
        if recorded is not None:
            write_tensor_lists(recorded.kineto_results, self.path)
            write_collectives(self.path)
        self._exported = True
        self.forget()
        return self.path

    def forget(self) -> None:
        """Free what was recorded, once nobody will export it.

        torch's profiler is in a circle with itself, and Python may not collect for hours.
        """
        self._profiler.profiler = None


def _overtake() -> None:
    """Leave alone what still records on another thread: only one profile is torch's.

    torch would take the process with it (SIGSEGV, 2.13) where that one were stopped after the next
    one had been, and logs three warnings until the process is over.
    """
    for trace in [each for each in _running if not each.can_stop_here]:
        _running.remove(trace)
        overtaken.append(trace)
        own_profilers.discard(id(trace._profiler))
        cpp_log_level.errors_only()


def cupti_held_by() -> str | None:
    """The tool that has CUPTI where there is a GPU: torch's profiler is not to ask for it then.

    Its attempt would fail, or cost the other tool its records.
    """
    return cupti_holder() if torch.cuda.is_available() else None


def initialise(folder: Path) -> None:
    """Have Kineto begin on the calling thread, which imported torch: on others it complains."""
    trace = TorchTrace(folder / "nothing.json", steps=None)
    trace.start()
    trace.stop()


@contextmanager
def _without_warnings() -> Iterator[None]:
    # What torch warns of concerns its own schedule (2.11: "Profiler clears events at the end of
    # each cycle"), which is as we want it, and stderr belongs to the script.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _without_compilers() -> Iterator[None]:
    """Within this context torch does not import inductor to look at a setting of it.

    A program that has not imported inductor has set nothing there, and may still set variables that
    inductor and dynamo read when they are imported, which takes seconds.
    """
    if "torch._inductor" in sys.modules:
        yield
        return
    module: Any = torch
    original, thread = module.__getattr__, threading.get_ident()

    def getattribute(name: str) -> Any:
        if name == "_inductor" and threading.get_ident() == thread:
            raise AttributeError(name)
        return original(name)

    module.__getattr__ = getattribute
    try:
        yield
    finally:
        module.__getattr__ = original


@contextmanager
def yielding_to(stop_ours: Callable[[], None]) -> Iterator[None]:
    """Within this context, call `stop_ours` before the script starts a profiler of its own."""
    high_level: Any = torch.profiler.profile
    low_level: Any = torch.autograd.profiler.profile
    prepare_original, enter_original = high_level.prepare_trace, low_level.__enter__

    def prepare_trace(profiler: Any) -> Any:
        if own_profilers and id(profiler) not in own_profilers:
            stop_ours()
        return prepare_original(profiler)

    def enter(profiler: Any) -> Any:
        if own_profilers:
            stop_ours()
        return enter_original(profiler)

    high_level.prepare_trace, low_level.__enter__ = prepare_trace, enter
    try:
        yield
    finally:
        # prepare_trace is inherited: without the override the class has its own again.
        del high_level.prepare_trace
        low_level.__enter__ = enter_original
