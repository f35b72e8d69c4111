"""Products that ran without tensor cores where the device has them for that product."""

from collections.abc import Sequence
from typing import Final

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.ceilings import Roof
from gpuprof.roofline.machine.roof_time import Traffic, roof_time
from gpuprof.roofline.points.classify import TensorPath

# NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core Requirements": sizes in
# multiples of 16 bytes.
_ALIGNED_BYTES: Final = 16


def tensor_path(
    call: OpCall | None,
    flops: Sequence[Flops] | None,
    traffic: Sequence[Traffic] | None,
    roof: Roof | None,
) -> TensorPath | None:
    """The tensor cores that could do the products of `call`, or None.

    None where the kernels' names do not tell that they ran without, and where there are none.
    `flops` and `traffic` are of the products as they ran.
    """
    if call is None or call.arithmetic is None or call.arithmetic.tensor_cores is not False:
        return None
    if roof is None or flops is None:
        return None
    on_tensor_cores = [
        Flops(part.kind, "tf32", part.count) if _is_float32(part) else part for part in flops
    ]
    units = [
        roof.compute_rate("matmul", part.precision)
        for part in on_tensor_cores
        if part.kind == "matmul"
    ]
    if not units or any(ceiling is None or ceiling.unit != "tensor" for ceiling in units):
        return None
    binding = roof_time(on_tensor_cores, traffic, roof).binding
    if binding is None:
        return None
    return TensorPath(f"no tensor cores: {_why(call, flops)}", binding.ns)


def _is_float32(part: Flops) -> bool:
    return (part.kind, part.precision) == ("matmul", "fp32")


def _why(call: OpCall, flops: Sequence[Flops]) -> str:
    if any(map(_is_float32, flops)):
        return "float32 operands, which TF32 would multiply there"
    if is_misaligned(call):
        return f"rows that are no multiple of {_ALIGNED_BYTES} bytes"
    if any(_is_scattered(tensor) for tensor in _tensors(call)):
        return "an operand is not contiguous"
    return "the kernel's name says so"


def is_misaligned(call: OpCall) -> bool:
    """Whether rows of an operand start at addresses that a tensor core cannot load from."""
    return any(_has_odd_rows(tensor) for tensor in _tensors(call))


def _tensors(call: OpCall) -> list[Tensor]:
    return [argument for argument in call.arguments if isinstance(argument, Tensor)]


def _has_odd_rows(tensor: Tensor) -> bool:
    if tensor.dtype is None or len(tensor.shape) < 2:
        return False
    strides = tensor.strides
    if strides is None or len(strides) != len(tensor.shape):
        row = tensor.shape[-1]
    else:
        row = max(strides[-2:])
    return bool(tensor.dtype.bytes_for(row) % _ALIGNED_BYTES)


def _is_scattered(tensor: Tensor) -> bool:
    """Whether neither of the last two axes of `tensor` lies in one piece."""
    strides = tensor.strides
    return strides is not None and len(strides) > 1 and 1 not in strides[-2:]
