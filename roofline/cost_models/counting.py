"""What the families share: which unit and precision operations run on, and bytes of tensors.

A multiply-add is two operations. A product of complex numbers is four real multiply-adds.
"""

from collections.abc import Iterable

from gpuprof.roofline.cost_models.call import MathMode, Tensor
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import DType


def matmul_flops(dtype: DType | None, count: int, *, tf32: bool) -> tuple[Flops, ...] | None:
    """`count` operations of products summed along an axis; None where the dtype is unknown."""
    if dtype is None:
        return None
    precision = "tf32" if dtype.precision == "fp32" and tf32 else dtype.precision
    return (Flops("matmul", precision, count * 4 if dtype.kind == "complex" else count),)


def gemm_flops(dtype: DType | None, count: int, mode: MathMode) -> tuple[Flops, ...] | None:
    """`matmul_flops` of a GEMM under the program's float32 setting."""
    return matmul_flops(dtype, count, tf32=mode.tf32_matmul)


def vector_flops(dtype: DType | None, count: int) -> tuple[Flops, ...] | None:
    """`count` operations outside matrix products; None where the dtype is unknown or complex.

    torch's kernels compute 16-bit and 8-bit floats in float32 (at::opmath_type), so that is the
    precision they count at.
    """
    if count == 0:
        return ()
    if dtype is None or dtype.kind == "complex":
        return None
    if dtype.kind in ("bool", "integer"):
        return (Flops("vector", "integer", count),)
    return (Flops("vector", "fp64" if dtype.bits == 64 else "fp32", count),)


def total(values: Iterable[int | None]) -> int | None:
    """The sum, or None where a part is unknown."""
    result = 0
    for value in values:
        if value is None:
            return None
        result += value
    return result


def bytes_of(*tensors: Tensor | None) -> int | None:
    """Bytes of the distinct elements; absent tensors count nothing, unknown dtypes give None."""
    return total(tensor.bytes for tensor in tensors if tensor is not None)


def bytes_for(elements: int | None, dtype: DType | None) -> int | None:
    """Bytes of `elements` new elements, or None where number or dtype is unknown."""
    return None if elements is None or dtype is None else dtype.bytes_for(elements)


def copy_cost(read: int | None, written: int | None, *assumptions: str) -> Cost:
    """The cost of moving data without arithmetic."""
    return Cost(flops=(), bytes_read=read, bytes_written=written, assumptions=assumptions)
