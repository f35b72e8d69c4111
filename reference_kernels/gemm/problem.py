"""The GEMM family's problem: C = A B, with an epilogue or in groups of rows where asked."""

import math
import re
from itertools import pairwise
from typing import ClassVar, Literal, cast

import torch

from gpuprof.reference_kernels.suite import (
    TORCH_DTYPES,
    DeviceType,
    KnownWork,
    Problem,
    UnsupportedError,
)
from gpuprof.roofline.cost_models.cost import Flops

Epilogue = Literal["relu", "gelu"]

_SIZE = re.compile(r"(?:(\d+)g)?(\d+)x(\d+)x(\d+)(?:\+(relu|gelu))?")
# What rounding of sums and outputs explains: inputs are rounded before the reference sees them. fp8
# on Hopper sums in fewer bits than float32 has (fast accumulation); int8's sums are exact.
_TOLERANCES = {
    "fp64": 1e-12,
    "fp32": 1e-5,
    "tf32": 1e-3,
    "fp16": 2e-3,
    "bf16": 1e-2,
    "fp8": 1e-2,
    "int8": 0.0,
}
_FP8_CAPABILITY = (8, 9)
# FLOPs of an epilogue's function on one element: a comparison; tanh GELU as
# x/2 (1 + tanh(x (c + d x^2))), seven with the tanh as one.
_ACTIVATION_FLOPS: dict[Epilogue, int] = {"relu": 1, "gelu": 7}


class GemmProblem(Problem):
    """C[M, N] = A[M, K] B[K, N].

    `a` is row-major. `b` is row-major too, but for tf32, fp8 and int8 a transposed view of [N, K]:
    their tensor-core instructions take no other order from shared memory. C has the operands'
    dtype; fp8 gives bf16, int8 gives int32.

    "+relu" and "+gelu" add a bias [N] and the activation (GELU by its tanh formula), with B scaled
    so that the activation sees values near 1 (but for 8-bit types, which have no such digits).

    "8g" before the size is a mixture of experts: the M rows fall into 8 groups of random lengths,
    `offsets` [8] holding each group's end, and group i is multiplied by `b[i]` of [8, K, N].
    """

    family = "gemm"
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": (
            "4096x4096x4096",
            "8192x8192x8192",
            "16384x256x4096",
            "1x14336x4096",
            "8g4096x4096x4096",
            "4096x4096x4096+gelu",
        ),
        "cpu": ("512x512x512", "1x2048x2048", "256x256x256+gelu", "4g256x256x256"),
    }
    default_dtypes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("bf16", "fp8", "tf32", "fp32"),
        "cpu": ("fp32", "bf16"),
    }
    size_form = "[Gg]MxNxK[+relu|+gelu], as 4096x4096x4096 or 8g4096x4096x4096"

    def __init__(self, size: str, dtype: str, device: torch.device, *, seed: int = 0) -> None:
        super().__init__(size, dtype, device, seed=seed)
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ValueError(f"{size!r} is no GEMM size: expected {self.size_form}")
        self.m, self.n, self.k = (int(number) for number in match.group(2, 3, 4))
        self.groups = None if match[1] is None else int(match[1])
        self.epilogue = cast("Epilogue | None", match[5])
        if min(self.m, self.n, self.k, self.groups or 1) < 1:
            raise ValueError(f"{size!r}: every number must be at least 1")
        if dtype not in _TOLERANCES:
            raise ValueError(f"gemm has no {dtype}: {', '.join(_TOLERANCES)}")
        self.plain = self.groups is None and self.epilogue is None
        self.output_dtype = {"fp8": torch.bfloat16, "int8": torch.int32}.get(
            dtype, TORCH_DTYPES[dtype]
        )
        self.a = self._operand(self.m, self.k)
        self.b = self._right_operand()
        self.bias = None if self.epilogue is None else self._operand(self.n)
        self.offsets = None if self.groups is None else self._group_ends(self.groups)

    def new_output(self) -> torch.Tensor:
        """Room for C."""
        return torch.empty(self.m, self.n, device=self.device, dtype=self.output_dtype)

    def work(self) -> KnownWork:
        """2 M N K FLOPs, and the epilogue's; A, B, bias and offsets read, C written."""
        flops = [Flops("matmul", self.dtype, 2 * self.m * self.n * self.k)]
        if self.epilogue is not None:
            count = (1 + _ACTIVATION_FLOPS[self.epilogue]) * self.m * self.n
            flops.append(Flops("vector", "fp32", count))
        inputs = (self.a, self.b, self.bias, self.offsets)
        return KnownWork(
            flops=tuple(flops),
            bytes_read=sum(t.numel() * t.element_size() for t in inputs if t is not None),
            bytes_written=self.m * self.n * self.output_dtype.itemsize,
        )

    def reference(self) -> tuple[torch.Tensor, ...]:
        """C in float64."""
        if self.offsets is not None:
            ends = [0, *self.offsets.tolist()]
            rows = [self.a[start:end] for start, end in pairwise(ends)]
            products = [part.double() @ b.double() for part, b in zip(rows, self.b, strict=True)]
            return (torch.cat(products),)
        product = self.a.double() @ self.b.double()
        if self.bias is not None:
            product += self.bias.double()
        if self.epilogue == "relu":
            product.relu_()
        elif self.epilogue == "gelu":
            product = torch.nn.functional.gelu(product, approximate="tanh")
        return (product,)

    def require_fp8_units(self) -> None:
        """Raises `UnsupportedError` for fp8 on a GPU older than Ada and Hopper."""
        if self.dtype == "fp8" and self.device.type == "cuda":
            capability = torch.cuda.get_device_capability(self.device)
            if capability < _FP8_CAPABILITY:
                needed, has = (".".join(map(str, pair)) for pair in (_FP8_CAPABILITY, capability))
                raise UnsupportedError(f"fp8 needs compute capability {needed}, this GPU has {has}")

    @property
    def tolerance(self) -> float:
        """By dtype: rounding of sums and of the output."""
        return _TOLERANCES[self.dtype]

    def _operand(self, *shape: int) -> torch.Tensor:
        dtype = TORCH_DTYPES[self.dtype]
        if self.dtype == "int8":
            drawn = self.random(*shape, dtype=torch.float32)
            return (drawn * 32).clamp(-127, 127).to(dtype)
        return self.random(*shape, dtype=dtype)

    def _right_operand(self) -> torch.Tensor:
        if self.groups is not None:
            return self._operand(self.groups, self.k, self.n)
        if self.dtype in ("tf32", "fp8", "int8"):
            b = self._operand(self.n, self.k).t()
        else:
            b = self._operand(self.k, self.n)
        scaled = self.epilogue is not None and self.dtype not in ("fp8", "int8")
        return b / math.sqrt(self.k) if scaled else b

    def _group_ends(self, groups: int) -> torch.Tensor:
        """Ends of the groups when each row picks one at random, as a router does."""
        picks = torch.randint(
            groups, (self.m,), generator=self.generator, device=self.device, dtype=torch.int64
        )
        return torch.bincount(picks, minlength=groups).cumsum(0).to(torch.int32)
