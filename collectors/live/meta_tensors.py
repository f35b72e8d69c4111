"""Whether this process only works out shapes: all its tensors are on torch's meta device.

A trace does not tell: the profiler records operators on meta tensors like any others.
"""

import gc

import torch


def only_meta_tensors() -> bool:
    """Whether the parameters that are alive are all on the meta device; without any, all tensors.

    False where there are no tensors at all.
    """
    # By type(), as in parameter_groups: isinstance would ask proxies for their __class__.
    tensors = [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)]
    parameters = [found for found in tensors if issubclass(type(found), torch.nn.Parameter)]
    relevant = parameters or tensors
    return bool(relevant) and all(tensor.device.type == "meta" for tensor in relevant)
