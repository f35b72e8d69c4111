"""Softmax in Triton: a program holds whole rows in registers.

Source: the fused softmax of Triton's tutorials. FLOPs: 5 an element by definition; an H100
executes 0.94 times as many, the maximum being none that is counted. Bytes: compulsory, each row
being read once.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from functools import partial

import triton
import triton.language as tl

from gpuprof.reference_kernels.softmax.problem import SoftmaxProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.triton_rows import MOST_COLUMNS, choose_row_tile


@triton.jit
def softmax(input, output, rows, columns, ROWS: tl.constexpr, PADDED: tl.constexpr):
    """ROWS rows of `columns` <= PADDED elements a program."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, PADDED)[None, :]
    inside = (row < rows) & (column < columns)
    place = row * columns + column
    x = tl.load(input + place, mask=inside, other=0.0).to(tl.float32)
    x = tl.where(column < columns, x, float("-inf"))
    weights = tl.exp(x - tl.max(x, 1)[:, None])
    y = weights / tl.sum(weights, 1)[:, None]
    tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)


def prepare(problem: SoftmaxProblem) -> Prepared:
    if problem.columns > MOST_COLUMNS:
        raise UnsupportedError(f"softmax/triton holds rows of up to {MOST_COLUMNS} elements")
    tile = choose_row_tile(problem.columns)
    output = problem.input.new_empty(problem.input.shape)
    call = partial(
        softmax[(triton.cdiv(problem.rows, tile.rows),)],
        problem.input,
        output,
        problem.rows,
        problem.columns,
        ROWS=tile.rows,
        PADDED=tile.padded,
        num_warps=tile.warps,
    )
    return Prepared(call, (output,), note=tile.note)
