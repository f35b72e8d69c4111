"""Where a script's steps can be seen without editing it.

Each source calls back at every mark it sees: the object that made the mark and a label for
people. A mark stands at the end of a step (an optimizer's step, an explicit call) or at its start
(a module's forward call, an NVTX range). Sources are listed in order of trust; `StepFinder`
picks among them.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import ref

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from gpuprof.collectors.live import nvtx_ranges, torch_trace
from gpuprof.collectors.live.optimizers import live_optimizers

T = TypeVar("T")
# torch._C._current_graph_task_id() outside of all backward passes.
_NO_BACKWARD: Final = -1
# So many forward calls of another thread in a row are no steps: before the first one of the main
# thread, and after it, beside evaluations and where a pool of threads takes turns.
_CALLS_BEFORE_STEPS: Final = 8
_CALLS_BESIDE_STEPS: Final = 64


class _Numbered(Generic[T]):
    """Gives each object a number of its own without keeping it alive.

    An id alone would do only while the object lives: the next one may get it.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[ref[T], int]] = {}
        self._numbers = count()

    def key(self, item: T) -> int:
        """The number of `item`."""
        known = self._known.get(id(item))
        if known is None or known[0]() is not item:
            known = self._known[id(item)] = (ref(item), next(self._numbers))
        return known[1]

    def knows(self, item: T) -> bool:
        """Whether `item` has a number."""
        known = self._known.get(id(item))
        return known is not None and known[0]() is item

    def find(self, key: int) -> T:
        """The living object with the number `key`."""
        found = (item() for item, number in self._known.values() if number == key)
        return next(item for item in found if item is not None)


@dataclass(frozen=True)
class Mark:
    """One sighting of a step boundary."""

    source: "StepSource"
    # Which object made it; marks of one source with different keys are different steps.
    key: int
    # For people: "optimizer steps (AdamW)".
    label: str
    tokens: int | None = None


MarkCallback = Callable[[Mark], None]
# At a mark of the object that is known to make the steps: nothing is left to say of it.
StepCallback = Callable[[], None]


class StepSource(Protocol):
    """One way to see steps."""

    name: str
    # True where a mark ends a step, False where it starts one.
    marks_end: bool

    def install(self, callback: MarkCallback) -> None:
        """Begin to watch the whole process."""

    def narrow(self, key: int) -> None:
        """Watch only the object `key`, with nothing left on the others."""

    def reduce_to(self, key: int, step: StepCallback) -> None:
        """Call `step` at each mark of the object `key` from now on, with nothing left elsewhere."""

    def remove(self) -> None:
        """Stop watching. Safe to call twice."""


class ExplicitSteps:
    """Calls of `gpuprof.step()`."""

    name = "explicit"
    marks_end = True

    def __init__(self) -> None:
        self._told: Callable[[int | None], None] | None = None

    def install(self, callback: MarkCallback) -> None:
        self._told = lambda tokens: callback(Mark(self, 0, "gpuprof.step() calls", tokens))

    def step(self, tokens: int | None) -> None:
        """What `gpuprof.step()` calls."""
        if self._told is not None:
            self._told(tokens)

    def narrow(self, key: int) -> None:
        pass

    def reduce_to(self, key: int, step: StepCallback) -> None:
        self._told = lambda tokens: step()

    def remove(self) -> None:
        self._told = None


class ProfilerSteps:
    """Calls of `torch.profiler.profile.step()`, which scripts with a profiler already make."""

    name = "profiler"
    marks_end = True

    def __init__(self, own_profilers: set[int]) -> None:
        # ids of the profilers that gpuprof itself steps.
        self._own_profilers = own_profilers
        self._original: Callable[[Any], None] | None = None

    def install(self, callback: MarkCallback) -> None:
        self._tell(lambda: callback(Mark(self, 0, "torch.profiler steps")))

    def _tell(self, told: StepCallback) -> None:
        profile: Any = torch.profiler.profile
        original = profile.step
        own = self._own_profilers

        def step(profiler: Any) -> None:
            original(profiler)
            if id(profiler) not in own:
                told()

        self._original = original
        profile.step = step

    def narrow(self, key: int) -> None:
        pass

    def reduce_to(self, key: int, step: StepCallback) -> None:
        self.remove()
        self._tell(step)

    def remove(self) -> None:
        if self._original is not None:
            profile: Any = torch.profiler.profile
            profile.step = self._original
            self._original = None


class RangeSteps:
    """Pushes of the NVTX range that `--step-range` names."""

    name = "range"
    marks_end = False

    def __init__(self, range_name: str) -> None:
        self._range_name = range_name

    def install(self, callback: MarkCallback) -> None:
        label = f"NVTX ranges named {self._range_name!r}"
        self.reduce_to(0, lambda: callback(Mark(self, 0, label)))

    def narrow(self, key: int) -> None:
        pass

    def reduce_to(self, key: int, step: StepCallback) -> None:
        def pushed(name: str) -> None:
            if name == self._range_name:
                step()

        nvtx_ranges.on_push(pushed)

    def remove(self) -> None:
        nvtx_ranges.on_push(None)


class OptimizerSteps:
    """Ends of `torch.optim.Optimizer.step`."""

    name = "optimizer"
    marks_end = True

    def __init__(self) -> None:
        self._callback: MarkCallback | None = None
        self._handle: RemovableHandle | None = None
        self._optimizers: _Numbered[Optimizer] = _Numbered()

    def install(self, callback: MarkCallback) -> None:
        self._callback = callback
        self._handle = register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Optimizer, *_: object) -> None:
        # A compiled step has its hooks compiled in: seeing it would break its graph.
        if torch.compiler.is_compiling():
            return
        if self._callback is not None:
            label = f"optimizer steps ({type(optimizer).__name__})"
            self._callback(Mark(self, self._optimizers.key(optimizer), label))

    def others_may_step(self) -> bool:
        """Whether an optimizer of parameters that none has stepped is alive."""
        stepped: set[int] = set()
        waiting = []
        for optimizer in live_optimizers():
            # One whose constructor raised has none.
            groups = getattr(optimizer, "param_groups", ())
            parameters = {id(found) for group in groups for found in group["params"]}
            if self._optimizers.knows(optimizer):
                stepped |= parameters
            elif parameters:
                waiting.append(parameters)
        # A wrapper of an optimizer is one too, and has the parameters of the one that it steps.
        return any(stepped.isdisjoint(parameters) for parameters in waiting)

    def narrow(self, key: int) -> None:
        self._unhook()
        optimizer = self._optimizers.find(key)
        self._handle = optimizer.register_step_post_hook(self._stepped)

    def reduce_to(self, key: int, step: StepCallback) -> None:
        is_compiling = torch.compiler.is_compiling

        def stepped(*_: object) -> None:
            if not is_compiling():
                step()

        self._unhook()
        self._handle = self._optimizers.find(key).register_step_post_hook(stepped)

    def remove(self) -> None:
        self._unhook()
        self._callback = None

    def _unhook(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


class GraphReplays:
    """Calls of `torch.cuda.CUDAGraph.replay`: all that a program does which captured its step."""

    name = "graph"
    marks_end = False

    def __init__(self) -> None:
        self._original: Callable[[Any], None] | None = None
        self._graphs: _Numbered[Any] = _Numbered()

    def install(self, callback: MarkCallback) -> None:
        def replayed(graph: Any) -> None:
            callback(Mark(self, self._graphs.key(graph), "replays of a CUDA graph"))

        self._tell(replayed)

    def _tell(self, replayed: Callable[[Any], None]) -> None:
        graphs: Any = torch.cuda.CUDAGraph
        original = graphs.replay

        def replay(graph: Any) -> None:
            replayed(graph)
            original(graph)

        self._original = original
        graphs.replay = replay

    def narrow(self, key: int) -> None:
        pass

    def reduce_to(self, key: int, step: StepCallback) -> None:
        leading = ref(self._graphs.find(key))

        def replayed(graph: Any) -> None:
            if graph is leading():
                step()

        self.remove()
        self._tell(replayed)

    def remove(self) -> None:
        if self._original is not None:
            graphs: Any = torch.cuda.CUDAGraph
            graphs.replay = self._original
            self._original = None


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
        self._modules: _Numbered[torch.nn.Module] = _Numbered()
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


def training_is_pending() -> bool:
    """Whether a forward call looks like part of a step that an optimizer will end."""
    return torch.is_grad_enabled() and bool(live_optimizers())
