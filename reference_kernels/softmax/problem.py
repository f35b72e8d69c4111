"""Softmax problems: what is computed, on which inputs, at which cost."""

from typing import ClassVar

import torch

from gpuprof.reference_kernels.suite import TORCH_DTYPES, DeviceType, KnownWork, Problem
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.cost_models.softmax import FORWARD_OPERATIONS


class SoftmaxProblem(Problem):
    """softmax of each row of `input` (R, C): 5 operations an element, one read and one written.

    Counters show less written: at the kernel's end the last of the output, up to 20 MB on an H100,
    is still in the L2.
    """

    family: ClassVar[str] = "softmax"
    size_form: ClassVar[str] = "ROWSxCOLUMNS"
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("32768x4096", "8192x16384"),
        "cpu": ("1024x4096",),
    }
    default_dtypes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("bf16",),
        "cpu": ("fp32",),
    }

    def __init__(self, size: str, dtype: str, device: torch.device, *, seed: int = 0) -> None:
        super().__init__(size, dtype, device, seed=seed)
        numbers = size.split("x")
        if (
            len(numbers) != 2
            or not all(n.isdecimal() for n in numbers)
            or min(map(int, numbers)) < 1
        ):
            raise ValueError(f"softmax size {size!r} is not {self.size_form}")
        if dtype not in ("bf16", "fp16", "fp32"):
            raise ValueError(f"softmax has no {dtype}: bf16, fp16, fp32")
        self.rows, self.columns = map(int, numbers)
        self.input = self.random(self.rows, self.columns, dtype=TORCH_DTYPES[dtype])

    def work(self) -> KnownWork:
        flops = Flops("vector", "fp32", FORWARD_OPERATIONS * self.input.numel())
        return KnownWork((flops,), self.input.nbytes, self.input.nbytes)

    def reference(self) -> tuple[torch.Tensor, ...]:
        values = self.input.double()
        weights = torch.exp(values - values.amax(1, keepdim=True))
        return (weights / weights.sum(1, keepdim=True),)

    @property
    def tolerance(self) -> float:
        # bf16 rounds each intermediate of the eager version to 8 bits.
        return {"fp32": 1e-5, "fp16": 3e-3, "bf16": 2e-2}[self.dtype]
