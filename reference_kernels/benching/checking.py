"""Whether a version is right: its outputs against the float64 reference."""

import torch

from gpuprof.collectors.live import cuda
from gpuprof.reference_kernels.benching.coordination import Coordination
from gpuprof.reference_kernels.suite import Prepared, poison, relative_error


def check(prepared: Prepared, reference: tuple[torch.Tensor, ...], group: Coordination) -> float:
    """The relative error of a call on poisoned outputs, of several ranks the worst.

    The call checked is the second, so that one that spoils its inputs is found. NaN: an element
    is missing, or not a number.
    """
    for _ in range(2):
        poison(prepared.outputs)
        if prepared.before is not None:
            prepared.before()
        prepared.call()
    if cuda.in_use():
        cuda.synchronize()
    (worst,) = group.largest([relative_error(prepared.outputs, reference)])
    return worst
