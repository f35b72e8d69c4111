"""Layer and RMS normalisation in Triton: a program holds whole rows in registers.

Variance is the mean square of what is left after the mean, not a difference of squares, which
cancels. FLOPs: those of the definition; an H100 executes 1.2 times as many for layer and 1.1 for
rms, with the sums across threads and scaling by a factor a row. Bytes: compulsory, each row being
read once, and so counted; weight and bias are read by every program, from L2.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from functools import partial

import triton
import triton.language as tl

from gpuprof.reference_kernels.norm.problem import EPSILON, NormProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.triton_rows import MOST_COLUMNS, choose_row_tile


@triton.jit
def normalise(
    input,
    weight,
    bias,
    output,
    rows,
    columns,
    epsilon,
    LAYER: tl.constexpr,
    ROWS: tl.constexpr,
    PADDED: tl.constexpr,
):
    """ROWS rows of `columns` <= PADDED elements a program; LAYER subtracts the mean, adds bias."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, PADDED)[None, :]
    inside = (row < rows) & (column < columns)
    place = row * columns + column
    x = tl.load(input + place, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    if LAYER:
        mean = tl.sum(x, 1)[:, None] / columns
        x = tl.where(column < columns, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 1)[:, None] / columns + epsilon)
    y = x * scale * w
    if LAYER:
        y += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)


def prepare(problem: NormProblem) -> Prepared:
    if problem.columns > MOST_COLUMNS:
        raise UnsupportedError(f"norm/triton holds rows of up to {MOST_COLUMNS} elements")
    tile = choose_row_tile(problem.columns)
    output = problem.input.new_empty(problem.input.shape)
    call = partial(
        normalise[(triton.cdiv(problem.rows, tile.rows),)],
        problem.input,
        problem.weight,
        problem.bias,
        output,
        problem.rows,
        problem.columns,
        EPSILON,
        LAYER=problem.bias is not None,
        ROWS=tile.rows,
        PADDED=tile.padded,
        num_warps=tile.warps,
    )
    return Prepared(call, (output,), note=tile.note)
