"""Matrix products: 2 M N K operations each, counted at the precision of their operands.

The right operand is a weight: what activations are multiplied with. Of a batched product it counts
with the keys and values, which it is where attention is written out. Beside a vector it is the
matrix that is the weight, on whichever side.

The bias or `beta * self` of addmm and baddbmm is fused into the product's epilogue; its M N
additions are not counted (torch.utils.flop_counter does not either, TraceLens does), its bytes are.

Source: Golub and Van Loan, Matrix Computations, section 1.1; torch.utils.flop_counter, mm_flop.
"""

import math
from typing import Final

import msgspec

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost, MatrixProduct
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, gemm_flops
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import DType

MATRIX_AXES: Final = 2


def product(
    call: OpCall,
    left: Tensor,
    right: Tensor,
    output_shape: tuple[int, ...],
    inner: int,
    *,
    addend: Tensor | None = None,
    output_dtype: DType | None = None,
) -> Cost:
    """The product of two tensors into `output_shape`, summing `inner` products per element.

    `right` is a weight; with a batch axis of its own it is keys or values.
    """
    outputs = math.prod(output_shape)
    batched = len(right.shape) > MATRIX_AXES
    batch = math.prod(right.shape[:-2])
    columns = math.prod(right.shape) // max(batch * inner, 1)
    return Cost(
        flops=gemm_flops(call, left.dtype, 2 * outputs * inner),
        bytes_read=bytes_of(left, right, addend),
        bytes_written=bytes_for(outputs, output_dtype or left.dtype),
        weight_bytes=0 if batched else right.bytes,
        key_value_bytes=right.bytes if batched else 0,
        product=MatrixProduct(
            rows=outputs // max(batch * columns, 1), inner=inner, columns=columns, batch=batch
        ),
    )


def _matrix_times_vector(
    call: OpCall, matrix: Tensor, vector: Tensor, addend: Tensor | None = None
) -> Cost:
    """[M, K] @ [K]. The vector is the activation."""
    rows, inner = matrix.shape
    return product(call, vector, matrix, (rows,), inner, addend=addend)


def _matrices(
    call: OpCall, first: int, rank: int
) -> tuple[Tensor, Tensor, tuple[int, ...], int] | None:
    """The operands at `first` and after it, the product's shape and its inner size."""
    left, right = call.tensor(first), call.tensor(first + 1)
    if left is None or right is None or len(left.shape) != rank or len(right.shape) != rank:
        return None
    if left.shape[-1] != right.shape[-2] or left.shape[:-2] != right.shape[:-2]:
        return None
    return left, right, (*left.shape[:-1], right.shape[-1]), left.shape[-1]


@cost_model("aten::mm")
def mm(call: OpCall) -> Cost | None:
    """[M, K] @ [K, N]."""
    operands = _matrices(call, 0, 2)
    return None if operands is None else product(call, *operands)


@cost_model("aten::bmm")
def bmm(call: OpCall) -> Cost | None:
    """[B, M, K] @ [B, K, N]; a batch axis of stride 0 is read once."""
    operands = _matrices(call, 0, 3)
    return None if operands is None else product(call, *operands)


def _with_addend(call: OpCall, rank: int) -> Cost | None:
    operands = _matrices(call, 1, rank)
    addend = call.tensor(0)
    if operands is None or addend is None:
        return None
    # With beta = 0 the addend is not read (torch's documentation of addmm).
    return product(call, *operands, addend=None if call.number(3) == 0 else addend)


@cost_model("aten::addmm", "aten::addmm_", "aten::_addmm_activation")
def addmm(call: OpCall) -> Cost | None:
    """beta * self + [M, K] @ [K, N]."""
    return _with_addend(call, 2)


@cost_model("aten::baddbmm", "aten::baddbmm_")
def baddbmm(call: OpCall) -> Cost | None:
    """beta * self + [B, M, K] @ [B, K, N]."""
    return _with_addend(call, 3)


@cost_model("aten::mv", composite=True)
def mv(call: OpCall) -> Cost | None:
    """[M, K] @ [K]; calls addmv_."""
    matrix, vector = call.tensor(0), call.tensor(1)
    if matrix is None or vector is None or len(matrix.shape) != 2:
        return None
    return _matrix_times_vector(call, matrix, vector)


@cost_model("aten::addmv", "aten::addmv_")
def addmv(call: OpCall) -> Cost | None:
    """beta * self + [M, K] @ [K]."""
    addend, matrix, vector = call.tensor(0), call.tensor(1), call.tensor(2)
    if addend is None or matrix is None or vector is None or len(matrix.shape) != 2:
        return None
    read = None if call.number(3) == 0 else addend
    return _matrix_times_vector(call, matrix, vector, read)


@cost_model("aten::dot", "aten::vdot")
def dot(call: OpCall) -> Cost | None:
    """[K] @ [K]; neither is a weight."""
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None or len(left.shape) != 1:
        return None
    cost = product(call, left, right, (), left.shape[0])
    return msgspec.structs.replace(cost, weight_bytes=0, product=None)


@cost_model("aten::linear", "aten::mkldnn_linear", composite=True)
def linear(call: OpCall) -> Cost | None:
    """[..., K] @ [N, K].T + [N]; leading axes fold into M."""
    inputs, weight = call.tensor(0), call.tensor(1)
    if inputs is None or weight is None or not inputs.shape or len(weight.shape) not in (1, 2):
        return None
    if inputs.shape[-1] != weight.shape[-1]:
        return None
    output = (*inputs.shape[:-1], *weight.shape[:-1])
    return product(call, inputs, weight, output, weight.shape[-1], addend=call.tensor(2))


@cost_model("aten::matmul", composite=True)
def matmul(call: OpCall) -> Cost | None:
    """numpy's matmul: batch axes broadcast, a 1-d operand loses its axis in the output."""
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None or not left.shape or not right.shape:
        return None
    rows = left.shape[-2:-1]
    columns = right.shape[-1:] if len(right.shape) > 1 else ()
    inner = right.shape[-2] if len(right.shape) > 1 else right.shape[0]
    if left.shape[-1] != inner:
        return None
    batch = broadcast_shape(left.shape[:-2], right.shape[:-2])
    if batch is None:
        return None
    if len(left.shape) == MATRIX_AXES and len(right.shape) == 1:
        return _matrix_times_vector(call, left, right)
    return product(call, left, right, (*batch, *rows, *columns), inner)


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that `shapes` broadcast to, or None where they do not."""
    rank = max(map(len, shapes), default=0)
    result: list[int] = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            return None
        result.append(wide.pop() if wide else 1)
    return tuple(result)


register_composites(
    "aten::einsum",
    "aten::tensordot",
    "aten::inner",
    "aten::chain_matmul",
    "aten::linalg_multi_dot",
    "aten::bilinear",
    "aten::_trilinear",
    "aten::linear_backward",
)
