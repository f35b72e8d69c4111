"""Sees NVTX ranges that the program opens through `torch.cuda.nvtx` or `nvtx`.

torch.profiler does not record NVTX, so the Python entry points are wrapped. The wrappers stay for
the life of the process, because a script may have imported them by name; while nobody listens
they cost one test of a flag.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import nvtx
import torch

from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.live.recorded_range import RecordedRange
from gpuprof.collectors.live.unix_clock import unix_ns

Handle = TypeVar("Handle")


class _OpenRanges(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[str, str, int]] = []


_open = _OpenRanges()
_recorded: list[RecordedRange] = []
# Ranges that a handle ends, by its identity; the handle is kept, so that no other has it.
_pending: dict[int, tuple[object, tuple[str, str, int, int]]] = {}
_recording = False
_push_listener: Callable[[str], None] | None = None
_installed = False


def install() -> None:
    """Wrap the entry points, once in a process."""
    global _installed
    if _installed:
        return
    _installed = True
    _wrap_torch()
    _wrap_nvtx()


def on_push(listener: Callable[[str], None] | None) -> None:
    """Call `listener` with the name of each range that opens; None ends that."""
    global _push_listener
    _push_listener = listener


def start_recording() -> None:
    """Keep the ranges that open from now on."""
    global _recording
    _recording = True


def stop_recording() -> None:
    """Keep no more ranges."""
    global _recording
    _recording = False


def take_recorded() -> list[RecordedRange]:
    """The ranges recorded and closed so far; they are forgotten here, and those still pending."""
    taken = _recorded.copy()
    _recorded.clear()
    _pending.clear()
    return taken


class UserRanges:
    """A `ProfileRecorder` of the ranges that the program opens and closes while a profile runs."""

    subject = "the program's ranges"

    def start(self) -> None:
        """See `ProfileRecorder`."""
        start_recording()

    def stop(self) -> Rows:
        """See `ProfileRecorder`."""
        stop_recording()
        return {"ranges": [asdict(recorded) for recorded in take_recorded()]}


def add(recorded: RecordedRange) -> None:
    """Keep a range that was timed elsewhere, while ranges are recorded."""
    if _recording:
        _recorded.append(recorded)


def _heard(name: object) -> None:
    if _push_listener is not None:
        _push_listener(str(name))


def _opened(name: object, domain: str) -> None:
    _heard(name)
    # Inside a recorded range others are kept too, or their ends would be taken for its end.
    if _recording or _open.stack:
        _open.stack.append((str(name), domain, unix_ns()))


def _closed() -> None:
    if not _open.stack:
        return
    name, domain, start_ns = _open.stack.pop()
    if _recording:
        end_ns = unix_ns()
        thread = threading.get_native_id()
        _recorded.append(RecordedRange(name, domain, thread, start_ns, end_ns))


class _TorchHandle(int):
    """What torch answers to the start of a range, told apart from equal ones by identity.

    Where no tool listens NVTX gives every range the same number.
    """


class _NvtxHandle(tuple[int, ...]):
    """What nvtx answers to the start of a range, as above; empty where no tool listens."""


def _started(name: object, domain: str, handle: Handle) -> Handle:
    """Note that a range began which `handle` ends."""
    started = (str(name), domain, threading.get_native_id(), unix_ns())
    _pending[id(handle)] = (handle, started)
    return handle


def _ended(handle: object) -> None:
    _, started = _pending.pop(id(handle), (None, None))
    if started is not None and _recording:
        name, domain, thread, start_ns = started
        _recorded.append(
            RecordedRange(name, domain, thread, start_ns, unix_ns(), across_threads=True)
        )


def _wrap_torch() -> None:
    module: Any = torch.cuda.nvtx
    push, pop = module.range_push, module.range_pop
    start, end = module.range_start, module.range_end

    def range_start(msg: str) -> Any:
        # Raises where torch has no CUDA; then no range is open.
        handle = start(msg)
        _heard(msg)
        return _started(msg, "nvtx", _TorchHandle(handle)) if _recording else handle

    def range_end(range_id: Any) -> Any:
        _ended(range_id)
        return end(range_id)

    module.range_start, module.range_end = range_start, range_end

    def range_push(msg: str) -> Any:
        # Raises where torch has no CUDA; then no range is open.
        depth = push(msg)
        _opened(msg, "nvtx")
        return depth

    def range_pop() -> Any:
        _closed()
        return pop()

    module.range_push, module.range_pop = range_push, range_pop


def _wrap_nvtx() -> None:
    push, pop = nvtx.push_range, nvtx.pop_range

    @functools.wraps(push)
    def push_range(*args: Any, **kwargs: Any) -> Any:
        _opened(*_label(args, kwargs))
        return push(*args, **kwargs)

    @functools.wraps(pop)
    def pop_range(*args: Any, **kwargs: Any) -> Any:
        _closed()
        return pop(*args, **kwargs)

    nvtx.push_range, nvtx.pop_range = push_range, pop_range
    _wrap_handles()
    _wrap_annotate(nvtx.annotate)


def _wrap_handles() -> None:
    start, end = nvtx.start_range, nvtx.end_range

    @functools.wraps(start)
    def start_range(*args: Any, **kwargs: Any) -> Any:
        handle = start(*args, **kwargs)
        name, domain = _label(args, kwargs)
        _heard(name)
        return _started(name, domain, _NvtxHandle(handle or ())) if _recording else handle

    @functools.wraps(end)
    def end_range(range_id: Any) -> Any:
        _ended(range_id)
        # None is what nvtx knows as the handle of no range.
        return end(range_id or None)

    nvtx.start_range, nvtx.end_range = start_range, end_range


def _wrap_annotate(annotate: Any) -> None:
    # The class is changed in place: `from nvtx import annotate` may have run already.
    initialise, enter, leave, decorate = (
        annotate.__init__,
        annotate.__enter__,
        annotate.__exit__,
        annotate.__call__,
    )

    def annotate_init(self: Any, *args: Any, **kwargs: Any) -> None:
        self._gpuprof_label = _label(args, kwargs)
        initialise(self, *args, **kwargs)

    def label_of(self: Any) -> tuple[str, str]:
        # One that was made before this ran has what newer nvtx versions keep, if anything.
        label: tuple[str, str] | None = getattr(self, "_gpuprof_label", None)
        return label or _label(getattr(self, "init_args", ()), {})

    def annotate_enter(self: Any) -> Any:
        _opened(*label_of(self))
        return enter(self)

    def annotate_exit(self: Any, *exception: Any) -> Any:
        _closed()
        return leave(self, *exception)

    def annotate_call(self: Any, function: Any) -> Any:
        decorated = decorate(self, function)
        name, domain = label_of(self)

        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            _opened(name or function.__name__, domain)
            try:
                return decorated(*args, **kwargs)
            finally:
                _closed()

        return inner

    annotate.__init__ = annotate_init
    annotate.__enter__ = annotate_enter
    annotate.__exit__ = annotate_exit
    annotate.__call__ = annotate_call


def _label(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    # The parameters of nvtx.push_range and nvtx.annotate: message, color, domain, ...
    message = args[0] if args else kwargs.get("message")
    domain = args[2] if len(args) > 2 else kwargs.get("domain")
    return str(message or ""), str(domain or "nvtx")
