"""Square matrix products in each precision, on random data: 2 n^3 FLOPs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from gpuprof.reference_kernels.calibration.probe import Call

GPU_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
CPU_PRECISIONS = ("fp32", "fp64", "bf16")

# How the second factor lies in memory: one row or one column after the other. Libraries have
# other kernels for each.
Layout = Literal["rows", "columns"]
# cuBLAS takes the second factor of a product in 8 bits only in column order.
_COLUMNS_ONLY = frozenset({"fp8", "int8"})

_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


def gemm_flops(size: int) -> int:
    """FLOPs of a product of two `size` x `size` matrices, a multiply-add as two."""
    return 2 * size**3


def layouts(precision: str) -> tuple[Layout, ...]:
    """The layouts in which a second factor of `precision` can be multiplied."""
    return ("columns",) if precision in _COLUMNS_ONLY else ("rows", "columns")


def make_gemm(device: str, precision: str, size: int, layout: Layout | None = None) -> Call:
    """A call that multiplies two random matrices of `size` x `size` in `precision`.

    Raises RuntimeError or NotImplementedError, at the latest in the first call, where the device
    or this torch has no such product. float32 products run within `float32_products`.
    """
    if precision == "fp8":
        return _make_fp8(device, size)
    if precision == "int8":
        return _make_int8(device, size)
    dtype = _DTYPES[precision]
    left, right = (factor.to(dtype) for factor in _random_factors(device, size))
    if layout == "columns":
        right = right.t()
    out = torch.empty(size, size, device=device, dtype=dtype)
    return lambda: torch.mm(left, right, out=out)


@contextmanager
def float32_products(*, tf32: bool) -> Iterator[None]:
    """Let float32 products round their factors to TF32, or forbid it, within the block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _make_fp8(device: str, size: int) -> Call:
    left, right = (factor.to(torch.float8_e4m3fn) for factor in _random_factors(device, size))
    scale = torch.ones((), device=device, dtype=torch.float32)
    multiply: Callable[..., torch.Tensor] = torch._scaled_mm
    return lambda: multiply(
        left, right.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def _make_int8(device: str, size: int) -> Call:
    left, right = (
        (factor * 32).clamp(-127, 127).to(torch.int8) for factor in _random_factors(device, size)
    )
    return lambda: torch._int_mm(left, right.t())


def _random_factors(device: str, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two normal float32 matrices, without touching the program's own random numbers."""
    generator = torch.Generator(device).manual_seed(0)

    def draw() -> torch.Tensor:
        return torch.randn(size, size, device=device, dtype=torch.float32, generator=generator)

    return draw(), draw()
