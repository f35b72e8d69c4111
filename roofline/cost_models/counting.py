"""What the families share: which unit and precision operations run on, and bytes of tensors.

A multiply-add is two operations. A product of complex numbers is four real multiply-adds.
"""

from collections.abc import Iterable

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import DType


def matmul_flops(dtype: DType | None, count: int) -> tuple[Flops, ...] | None:
    """`count` operations of products of operands that are not float32, or None where unknown."""
    return _product_flops(dtype, count, "fp32")


def gemm_flops(call: OpCall, dtype: DType | None, count: int) -> tuple[Flops, ...] | None:
    """`count` operations of a GEMM; None where the dtype is unknown.

    Of float32 operands in the precision that the kernel's name tells, else the program's setting.
    """
    return _product_flops(dtype, count, _float32(call, call.math_mode.tf32_matmul))


def convolution_flops(
    call: OpCall, dtype: DType | None, count: int, *, allow_tf32: bool | None
) -> tuple[Flops, ...] | None:
    """`gemm_flops` of a convolution, whose own argument `allow_tf32` goes before the setting."""
    setting = call.math_mode.tf32_convolution if allow_tf32 is None else allow_tf32
    return _product_flops(dtype, count, _float32(call, setting))


def _float32(call: OpCall, tf32: bool | None) -> str:
    if call.arithmetic is not None:
        return call.arithmetic.float32
    return "tf32" if tf32 and call.math_mode.tf32_units else "fp32"


def _product_flops(dtype: DType | None, count: int, float32: str) -> tuple[Flops, ...] | None:
    if dtype is None:
        return None
    precision = float32 if dtype.precision == "fp32" else dtype.precision
    return (Flops("matmul", precision, count * 4 if dtype.kind == "complex" else count),)


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
