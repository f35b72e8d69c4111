"""What the optimizers of this process step: sizes and types of their parameter groups."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from gpuprof.collectors.live.live_objects import live_objects
from gpuprof.collectors.manifest import ParameterGroup

# torch's types as the profiler prints them, where those can be trained.
_PROFILER_NAMES = {
    torch.float64: "double",
    torch.float32: "float",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
}


def live_optimizers(among: Sequence[Any] | None = None) -> list[Optimizer]:
    """Every optimizer of this process that is alive, `among` as in `live_objects`."""
    return live_objects(Optimizer, among=among)


def live_parameter_groups(among: Sequence[Any] | None = None) -> tuple[ParameterGroup, ...]:
    """The groups of every optimizer that is alive, one a type, without frozen parameters."""
    found = []
    for optimizer in live_optimizers(among):
        # One whose constructor raised has none.
        for group in getattr(optimizer, "param_groups", ()):
            elements: dict[torch.dtype, int] = {}
            for parameter in group["params"]:
                if parameter.requires_grad:
                    elements[parameter.dtype] = elements.get(parameter.dtype, 0) + parameter.numel()
            found += [
                ParameterGroup(
                    optimizer=type(optimizer).__name__,
                    elements=count,
                    dtype=_PROFILER_NAMES[dtype],
                    weight_decay=group.get("weight_decay"),
                )
                for dtype, count in elements.items()
                if dtype in _PROFILER_NAMES
            ]
    return tuple(found)
