"""Steps that begin with a forward call: which calls are outermost, and on which thread."""

import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import ref

import torch

from gpuprof.collectors.live import torch_trace
from gpuprof.collectors.steps.numbered import Numbered
from gpuprof.collectors.steps.sources import Mark, MarkCallback, StepCallback

# torch._C._current_graph_task_id() outside of all backward passes.
_NO_BACKWARD: Final = -1
# So many forward calls of another thread in a row are no steps: before the first one of the main
# thread, and after it, beside evaluations and where a pool of threads takes turns.
_CALLS_BEFORE_STEPS: Final = 8
_CALLS_BESIDE_STEPS: Final = 64


class _SteppingThread:
    """The thread whose forward calls are steps: the main one, or one that calls while it does not.

    A profile is of one thread, so calls of the others are no steps.
    """

    def __init__(self) -> None:
        self._ident: int | None = None
        self._has_called = False
        # Since the last one on the thread that steps.
        self._calls_elsewhere: dict[int, int] = {}

    def prefer_main(self) -> None:
        """Take the main thread, where this is it; else whichever calls first."""
        # Where another thread imports torch, that may be the one that steps.
        if threading.current_thread() is threading.main_thread():
            self._ident = threading.get_ident()

    def is_this(self) -> bool:
        """Whether the calling thread is the one that steps."""
        here = threading.get_ident()
        if self._ident is None:
            self._ident = here
        if here != self._ident:
            return False
        self._has_called = True
        if self._calls_elsewhere:
            self._calls_elsewhere.clear()
        return True

    def takes_over(self) -> bool:
        """Whether a call on a thread that does not step makes it the one that does.

        It does after so many in a row, unless the thread that steps is profiled.
        """
        here = threading.get_ident()
        calls = self._calls_elsewhere[here] = self._calls_elsewhere.get(here, 0) + 1
        most = _CALLS_BESIDE_STEPS if self._has_called else _CALLS_BEFORE_STEPS
        if calls <= most or torch_trace.records_steps():
            return False
        self._ident = here
        self._has_called = True
        self._calls_elsewhere.clear()
        return True


class ForwardCalls:
    """Outermost `torch.nn.Module` calls.

    Hooks would do, but torch.compile traces them, compiles again when they go and warns about them,
    and they are copied and pickled with their module. So calls are diverted on a class: on all
    modules while steps are looked for, then on the class of the one that marks them. While an
    outermost call runs none is diverted, so inner modules never meet ours. Modules that the script
    compiles in place (`Module.compile`) are not seen.
    """

    name = "forward"
    marks_end = False

    def __init__(self) -> None:
        self._callback: MarkCallback | None = None
        self._undo: Callable[[], None] | None = None
        self._modules: Numbered[torch.nn.Module] = Numbered()
        self._thread = _SteppingThread()
        # A callback may raise through us, or mark again.
        self._marking = threading.RLock()
        # How many calls enclose one, on threads that do not step.
        self._elsewhere = threading.local()

    def install(self, callback: MarkCallback) -> None:
        self._callback = callback
        self._thread.prefer_main()
        self._watch_all()

    def _watch_all(self) -> None:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return module._call_impl(*args, **kwargs)
            if not self._thread.is_this():
                depth = getattr(self._elsewhere, "depth", 0)
                if depth or not self._thread.takes_over():
                    self._elsewhere.depth = depth + 1
                    try:
                        return module._call_impl(*args, **kwargs)
                    finally:
                        self._elsewhere.depth = depth
            self._stop_watching()
            try:
                self._mark(module)
                return module._call_impl(*args, **kwargs)
            finally:
                if self._undo is None and self._callback is not None:
                    self._watch_all()

        self._undo = _divert_calls(torch.nn.Module, call)

    def _mark(self, module: torch.nn.Module) -> None:
        # Where a thread takes over, the one before may still be in here.
        with self._marking:
            if self._callback is not None and not _is_in_backward():
                label = f"forward calls of {type(module).__name__}"
                self._callback(Mark(self, self._modules.key(module), label))

    def narrow(self, key: int) -> None:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and self._modules.key(module) == key:
                if self._thread.is_this() or self._thread.takes_over():
                    self._mark(module)
            return module._call_impl(*args, **kwargs)

        self._stop_watching()
        self._undo = _divert_calls(type(self._modules.find(key)), call)

    def reduce_to(self, key: int, step: StepCallback) -> None:
        leading = ref(self._modules.find(key))
        is_compiling = torch.compiler.is_compiling
        steps_here = self._thread.is_this

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if (
                not is_compiling()
                and module is leading()
                and steps_here()
                and not _is_in_backward()
            ):
                step()
            return module._call_impl(*args, **kwargs)

        self._stop_watching()
        self._undo = _divert_calls(type(self._modules.find(key)), call)

    def remove(self) -> None:
        self._stop_watching()
        self._callback = None

    def _stop_watching(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None


def _is_in_backward() -> bool:
    """There checkpointing calls a module again, which begins no step."""
    return bool(torch._C._current_graph_task_id() != _NO_BACKWARD)


def _divert_calls(modules: type[torch.nn.Module], call: Callable[..., Any]) -> Callable[[], None]:
    """Make eager calls of `modules` run `call(module, ...)`; returns what ends that.

    The attribute is where `Module.compile` puts the compiled call of one module. Each eager call
    looks there, and torch.compile does not.
    """
    on_class: Any = modules
    on_class._compiled_call_impl = call

    def undo() -> None:
        if modules is torch.nn.Module:
            on_class._compiled_call_impl = None
        else:
            del on_class._compiled_call_impl

    return undo
