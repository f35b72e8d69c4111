"""Where a script's steps can be seen without editing it.

Each source calls back at every mark it sees: the object that made the mark and a label for
people. A mark stands at the end of a step (an optimizer's step, an explicit call) or at its start
(a module's forward call, an NVTX range). Sources are listed in order of trust; `StepFinder`
picks among them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import ref

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from gpuprof.collectors.live import nvtx_ranges
from gpuprof.collectors.live.optimizers import live_optimizers
from gpuprof.collectors.steps.numbered import Numbered


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
        self._optimizers: Numbered[Optimizer] = Numbered()

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
        self._graphs: Numbered[Any] = Numbered()

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


def training_is_pending() -> bool:
    """Whether a forward call looks like part of a step that an optimizer will end."""
    return torch.is_grad_enabled() and bool(live_optimizers())
