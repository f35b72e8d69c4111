"""Whether this process only works out shapes: all its tensors are on torch's meta device.

A trace does not tell: the profiler records operators on meta tensors like any others.
"""

from collections.abc import Sequence
from typing import Any

import torch

from gpuprof.collectors.live.live_objects import live_objects


def only_meta_tensors(among: Sequence[Any] | None = None) -> bool:
    """Whether the parameters that are alive are all on the meta device; without any, all tensors.

    False where there are no tensors at all.
    """
    tensors = live_objects(torch.Tensor, among=among)
    parameters = [found for found in tensors if issubclass(type(found), torch.nn.Parameter)]
    relevant = parameters or tensors
    # A subclass answers in its own way to every call on it, or refuses.
    with torch._C.DisableTorchFunctionSubclass():
        return bool(relevant) and all(tensor.device.type == "meta" for tensor in relevant)
