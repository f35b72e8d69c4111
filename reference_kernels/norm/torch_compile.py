"""The formulas through torch.compile, which fuses them into one Triton kernel.

FLOPs: those of the definition; an H100 executes 1.7 times as many for layer (Welford's update) and
1.4 for rms. Bytes: compulsory where the compiler holds a row in registers; otherwise rows are read
two or three times, from L2 (an H100 was counted to read the compulsory bytes from DRAM).
"""

import torch

from gpuprof.reference_kernels.compiling import prepare_compiled
from gpuprof.reference_kernels.norm.problem import EPSILON, NormProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: NormProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    formula = _rms if problem.bias is None else _layer
    return prepare_compiled(formula, (problem.input, *problem.parameters), problem.device)


def _layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    centred = wide - wide.mean(1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(1, keepdim=True) + EPSILON)
    return (centred * scale * weight + bias).to(x.dtype)


def _rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + EPSILON) * weight).to(x.dtype)
