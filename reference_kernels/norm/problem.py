"""Normalisation problems: what is computed, on which inputs, at which cost."""

from typing import ClassVar

import torch

from gpuprof.reference_kernels.suite import TORCH_DTYPES, DeviceType, KnownWork, Problem
from gpuprof.roofline.cost_models.cost import Flops

EPSILON = 1e-5
# Operations an element. layer: mean 1, variance 3, normalise 2, weight 1, bias 1. rms: square,
# sum, scale, weight.
OPERATIONS = {"layer": 8, "rms": 4}


class NormProblem(Problem):
    """Each row of `input` (R, C) normalised, times `weight` (C), for layer plus `bias` (C).

    layer: (x - mean) / sqrt(variance + 1e-5) (Ba et al., 2016).
    rms: x / sqrt(mean of squares + 1e-5) (Zhang and Sennrich, 2019).

    Counters show less written: at the kernel's end the last of the output, up to 20 MB on an H100,
    is still in the L2.
    """

    family: ClassVar[str] = "norm"
    size_form: ClassVar[str] = "layer:ROWSxCOLUMNS or rms:ROWSxCOLUMNS"
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("layer:32768x4096", "rms:32768x4096"),
        "cpu": ("layer:1024x4096", "rms:1024x4096"),
    }
    default_dtypes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("bf16",),
        "cpu": ("fp32",),
    }

    def __init__(self, size: str, dtype: str, device: torch.device, *, seed: int = 0) -> None:
        super().__init__(size, dtype, device, seed=seed)
        operation, _, dimensions = size.partition(":")
        numbers = dimensions.split("x")
        if (
            operation not in OPERATIONS
            or len(numbers) != 2
            or not all(n.isdecimal() for n in numbers)
            or min(map(int, numbers)) < 1
        ):
            raise ValueError(f"norm size {size!r} is not {self.size_form}")
        if dtype not in ("bf16", "fp16", "fp32"):
            raise ValueError(f"norm has no {dtype}: bf16, fp16, fp32")
        self.operation = operation
        self.rows, self.columns = map(int, numbers)
        element = TORCH_DTYPES[dtype]
        self.input = self.random(self.rows, self.columns, dtype=element)
        self.weight = self.random(self.columns, dtype=element)
        self.bias = self.random(self.columns, dtype=element) if operation == "layer" else None

    @property
    def parameters(self) -> tuple[torch.Tensor, ...]:
        """Weight, and bias where there is one."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def work(self) -> KnownWork:
        flops = Flops("vector", "fp32", OPERATIONS[self.operation] * self.input.numel())
        read = self.input.nbytes + sum(tensor.nbytes for tensor in self.parameters)
        return KnownWork((flops,), read, self.input.nbytes)

    def reference(self) -> tuple[torch.Tensor, ...]:
        values = self.input.double()
        if self.bias is not None:
            values = values - values.mean(1, keepdim=True)
        scale = torch.rsqrt(values.square().mean(1, keepdim=True) + EPSILON)
        result = values * scale * self.weight.double()
        return (result if self.bias is None else result + self.bias.double(),)

    @property
    def tolerance(self) -> float:
        return {"fp32": 1e-5, "fp16": 3e-3, "bf16": 2e-2}[self.dtype]
