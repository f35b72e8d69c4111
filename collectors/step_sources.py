"""Where a script's steps can be seen without editing it.

Each source calls back at every mark it sees: the object that made the mark and a label for
people. A mark stands at the end of a step (an optimizer's step, an explicit call) or at its start
(a module's forward call, an NVTX range). Sources are listed in order of trust; `StepFinder`
picks among them.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from gpuprof.collectors import nvtx_ranges
from gpuprof.collectors.parameter_groups import live_optimizers


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


class StepSource(Protocol):
    """One way to see steps."""

    name: str
    # True where a mark ends a step, False where it starts one.
    marks_end: bool

    def install(self, callback: MarkCallback) -> None:
        """Begin to watch the whole process."""

    def narrow(self, key: int) -> None:
        """Watch only the object `key`, with nothing left on the others."""

    def remove(self) -> None:
        """Stop watching. Safe to call twice."""


class ExplicitSteps:
    """Calls of `gpuprof.step()`."""

    name = "explicit"
    marks_end = True

    def __init__(self) -> None:
        self._callback: MarkCallback | None = None

    def install(self, callback: MarkCallback) -> None:
        self._callback = callback

    def step(self, tokens: int | None) -> None:
        """What `gpuprof.step()` calls."""
        if self._callback is not None:
            self._callback(Mark(self, 0, "gpuprof.step() calls", tokens))

    def narrow(self, key: int) -> None:
        pass

    def remove(self) -> None:
        self._callback = None


class ProfilerSteps:
    """Calls of `torch.profiler.profile.step()`, which scripts with a profiler already make."""

    name = "profiler"
    marks_end = True

    def __init__(self, own_profilers: set[int]) -> None:
        # ids of the profilers that gpuprof itself steps.
        self._own_profilers = own_profilers
        self._original: Callable[[Any], None] | None = None

    def install(self, callback: MarkCallback) -> None:
        profile: Any = torch.profiler.profile
        original = profile.step
        own = self._own_profilers

        def step(profiler: Any) -> None:
            original(profiler)
            if id(profiler) not in own:
                callback(Mark(self, 0, "torch.profiler steps"))

        self._original = original
        profile.step = step

    def narrow(self, key: int) -> None:
        pass

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

        def pushed(name: str) -> None:
            if name == self._range_name:
                callback(Mark(self, 0, label))

        nvtx_ranges.on_push(pushed)

    def narrow(self, key: int) -> None:
        pass

    def remove(self) -> None:
        nvtx_ranges.on_push(None)


class OptimizerSteps:
    """Ends of `torch.optim.Optimizer.step`."""

    name = "optimizer"
    marks_end = True

    def __init__(self) -> None:
        self._callback: MarkCallback | None = None
        self._handle: RemovableHandle | None = None
        self._optimizers: dict[int, Optimizer] = {}

    def install(self, callback: MarkCallback) -> None:
        self._callback = callback
        self._handle = register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Optimizer, *_: object) -> None:
        key = id(optimizer)
        self._optimizers[key] = optimizer
        if self._callback is not None:
            label = f"optimizer steps ({type(optimizer).__name__})"
            self._callback(Mark(self, key, label))

    def narrow(self, key: int) -> None:
        self._unhook()
        self._handle = self._optimizers[key].register_step_post_hook(self._stepped)

    def remove(self) -> None:
        self._unhook()
        self._callback = None
        self._optimizers.clear()

    def _unhook(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


class ForwardCalls:
    """Outermost `torch.nn.Module` calls.

    A hook on all modules makes every one of them take the slow way through `__call__` and is seen
    by torch.compile, so it is lifted while an outermost call runs: inner modules never have it.
    """

    name = "forward"
    marks_end = False

    def __init__(self) -> None:
        self._callback: MarkCallback | None = None
        self._handle: RemovableHandle | None = None
        self._modules: dict[int, torch.nn.Module] = {}
        self._thread: int | None = None

    def install(self, callback: MarkCallback) -> None:
        self._callback = callback
        self._thread = threading.get_ident()
        self._hook_all()

    def _hook_all(self) -> None:
        self._handle = torch.nn.modules.module.register_module_forward_pre_hook(self._entered)

    def _entered(self, module: torch.nn.Module, _: object) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != self._thread:
            return
        if self._handle is not None:
            self._handle.remove()
        self._handle = module.register_forward_hook(self._left, always_call=True)
        self._modules[id(module)] = module
        self._mark(module)

    def _left(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._hook_all()

    def _mark(self, module: torch.nn.Module, _: object = None) -> None:
        if self._callback is not None:
            label = f"forward calls of {type(module).__name__}"
            self._callback(Mark(self, id(module), label))

    def narrow(self, key: int) -> None:
        self._unhook()
        self._handle = self._modules[key].register_forward_pre_hook(self._mark)

    def remove(self) -> None:
        self._unhook()
        self._callback = None
        self._modules.clear()

    def _unhook(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


def training_is_pending() -> bool:
    """Whether a forward call looks like part of a step that an optimizer will end."""
    return torch.is_grad_enabled() and bool(live_optimizers())
