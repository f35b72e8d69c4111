"""Elementwise problems: what is computed, on which inputs, at which cost."""

import math
from typing import ClassVar

import torch

from gpuprof.reference_kernels.suite import TORCH_DTYPES, DeviceType, KnownWork, Problem
from gpuprof.roofline.cost_models.cost import Flops

# Operations an element of the output, an error function or exponential as one.
OPERATIONS = {
    # 0.5 x (1 + erf(x / sqrt 2))
    "gelu": 5,
    # gate / (1 + exp(-gate)) * up
    "swiglu": 5,
    # two products and a sum
    "rotary": 3,
}
_AXES = {"gelu": 2, "swiglu": 2, "rotary": 4}
_FLOAT32_BYTES = 4
ROTARY_BASE = 10_000.0


class ElementwiseProblem(Problem):
    """One operation on tensors of the dtype; computed in float32 by every version but eager.

    gelu: `input` (R, C); exact GELU. swiglu: `gate` and `up` (R, C); silu(gate) * up.
    rotary: `input` (B, S, H, D) and float32 tables `cosine`, `sine` (S, D / 2); the two halves of
    a head are rotated against each other, as Llama does (Su et al., "RoFormer", 2021).

    Counters show less written: at the kernel's end the last of the output, up to 20 MB on an H100,
    is still in the L2.
    """

    family: ClassVar[str] = "elementwise"
    size_form: ClassVar[str] = "gelu:RxC, swiglu:RxC or rotary:BxSxHxD"
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("gelu:16384x8192", "swiglu:16384x8192", "rotary:8x4096x32x128"),
        "cpu": ("gelu:1024x4096", "swiglu:1024x4096", "rotary:2x512x32x128"),
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
            len(numbers) != _AXES.get(operation)
            or not all(n.isdecimal() for n in numbers)
            or min(map(int, numbers)) < 1
        ):
            raise ValueError(f"elementwise size {size!r} is not {self.size_form}")
        if dtype not in ("bf16", "fp16", "fp32"):
            raise ValueError(f"elementwise has no {dtype}: bf16, fp16, fp32")
        self.operation = operation
        self.shape = tuple(map(int, numbers))
        element = TORCH_DTYPES[dtype]
        if operation == "gelu":
            self.input = self.random(*self.shape, dtype=element)
        elif operation == "swiglu":
            self.gate = self.random(*self.shape, dtype=element)
            self.up = self.random(*self.shape, dtype=element)
        else:
            if self.shape[-1] % 2:
                raise ValueError(f"elementwise size {size!r}: rotary needs an even D")
            self.input = self.random(*self.shape, dtype=element)
            self.cosine, self.sine = rotary_tables(self.shape[1], self.shape[3], device)

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """What the operation reads, in order."""
        if self.operation == "gelu":
            return (self.input,)
        if self.operation == "swiglu":
            return (self.gate, self.up)
        return (self.input, self.cosine, self.sine)

    def empty_output(self) -> torch.Tensor:
        """Room for the output."""
        return torch.empty(self.shape, dtype=TORCH_DTYPES[self.dtype], device=self.device)

    def work(self) -> KnownWork:
        elements = math.prod(self.shape)
        return KnownWork(
            (Flops("vector", "fp32", OPERATIONS[self.operation] * elements),),
            bytes_read=sum(tensor.nbytes for tensor in self.inputs),
            bytes_written=elements * TORCH_DTYPES[self.dtype].itemsize,
        )

    def reference(self) -> tuple[torch.Tensor, ...]:
        first, *others = (tensor.double() for tensor in self.inputs)
        if self.operation == "gelu":
            return (0.5 * first * (1 + torch.erf(first / math.sqrt(2))),)
        if self.operation == "swiglu":
            return (first / (1 + torch.exp(-first)) * others[0],)
        return (rotated(first, others[0], others[1]),)

    @property
    def tolerance(self) -> float:
        return {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1e-2}[self.dtype]


def rotary_tables(
    length: int, head_size: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of (position, pair), (length, head_size / 2) in float32."""
    pair = torch.arange(0, head_size, 2, device=device, dtype=torch.float64)
    angles = torch.outer(
        torch.arange(length, device=device, dtype=torch.float64), ROTARY_BASE ** (-pair / head_size)
    )
    return angles.cos().float(), angles.sin().float()


def rotated(vectors: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """`vectors` (..., S, H, D) turned by the angles of `cosine` and `sine` (S, D / 2)."""
    first, second = vectors.chunk(2, -1)
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)
