"""The formulas through torch.compile, which fuses them into one Triton kernel.

FLOPs: those of the definition; for gelu an H100 executes 6.8 times as many, the error function
being a polynomial of two branches, for swiglu 1.3, for rotary 1.7, each half being computed with
masks. Bytes: compulsory, and so counted; rotary may read its halves twice, mostly from L2 (5 % more
in all).
"""

import math
from collections.abc import Callable

import torch

from gpuprof.reference_kernels.compiling import prepare_compiled
from gpuprof.reference_kernels.elementwise.problem import ElementwiseProblem, rotated
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ElementwiseProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    return prepare_compiled(_FORMULAS[problem.operation], problem.inputs, problem.device)


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.erf(x * (1 / math.sqrt(2))))


def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return gate * torch.sigmoid(gate) * up


def _rotary(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    return rotated(x, cosine, sine).to(x.dtype)


_FORMULAS: dict[str, Callable[..., torch.Tensor]] = {
    "gelu": _gelu,
    "swiglu": _swiglu,
    "rotary": _rotary,
}
