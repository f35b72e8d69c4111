"""Versions by torch.compile."""

from collections.abc import Callable

import torch

from gpuprof.reference_kernels.library_outputs import adopt, empty_outputs
from gpuprof.reference_kernels.suite import Prepared


def prepare_compiled(
    formula: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], device: torch.device
) -> Prepared:
    """`formula(*inputs)` compiled for just these shapes."""
    # A first version of other shapes must not make this one's dynamic.
    compiled = torch.compile(formula, dynamic=False, fullgraph=True)
    outputs = empty_outputs(1, device)

    def call() -> None:
        with torch.no_grad():
            adopt(outputs, (compiled(*inputs),))

    call()
    return Prepared(call, outputs)
