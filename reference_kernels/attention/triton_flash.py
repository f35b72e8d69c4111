"""FlashAttention-2 forward in Triton: scores stay on the chip.

Source: Dao, "FlashAttention-2" (2023), algorithm 1, with the online softmax of Milakov and
Gimelshein (2018). A program keeps ROWS queries and walks over the keys; only blocks on the diagonal
(or the ragged end) are masked. Exponentials are to base 2, the scale folded into their argument.
Tiles come by tensor descriptors: TMA on Hopper and later, plain loads before. Small tiles are
fastest on Hopper: while one program's warps take exponentials, the tensor cores work for the two
or three others of the multiprocessor. So queries of D = 128 are kept in registers, which leaves
shared memory for a third.

FLOPs: 4 D a pair of the tiles visited, that is the kept pairs and the masked half of the diagonal
tiles (`executed_flops`; 1.5 % more than kept at S = 4096, tiles of 64 x 64). Bytes: compulsory
and one float32 log-sum-exp a row; keys and values are read once by each tile of queries, from L2.
Counted on an H100: these FLOPs and bytes read, and less written, as some still lies in the L2.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops

_HEAD_SIZES = (16, 32, 64, 128)
LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class FlashTiles:
    """Queries and keys of a tile, warps of a program, stages of its pipeline of loads.

    `registers`: the most that a thread may use, None for the compiler's choice.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    registers: int | None = None

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns}, {self.warps} warps, {self.stages} stages"

    @property
    def options(self) -> dict[str, int | None]:
        """Of a kernel's launch."""
        return {
            "ROWS": self.rows,
            "COLUMNS": self.columns,
            "num_warps": self.warps,
            "num_stages": self.stages,
            "maxnreg": self.registers,
        }


# What Triton's interpreter takes, and sequences shorter than the others' rows.
SMALL = FlashTiles(16, 16, 4, 2)
# 168 registers let three programs of 4 warps share a multiprocessor.
_CONFIGURATIONS = (
    FlashTiles(64, 64, 4, 2, registers=168),
    FlashTiles(64, 64, 4, 3),
    FlashTiles(128, 64, 4, 2),
    FlashTiles(128, 64, 8, 3),
)


@triton.jit
def flash_forward(
    query,
    key,
    value,
    output,
    log_sum_exp,
    length,
    group,
    scale_log2,
    CAUSAL: tl.constexpr,
    HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """`query`, `key`, `value`: descriptors of (heads * length, HEAD); grid (tiles, heads).

    A descriptor clips at the end of the tensor, not of a head: rows beyond `length` are another
    head's and are masked or not stored. `log_sum_exp` is to base 2.
    """
    # A causal tile's work grows with its place: the longest start first.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    first = tile * ROWS
    rows = first + tl.arange(0, ROWS)
    base = head // group * length
    queries = query.load([head * length + first, 0])
    # The compiler keeps a tile that was computed with in registers, one only loaded in shared
    # memory. Half of a number has the same digits. Not where queries have the shape of weights
    # (HEAD = COLUMNS): ptxas 12.8, of Triton 3.6, and 12.9 give both the same registers, and the
    # first weights overwrite the queries.
    if HEAD > COLUMNS:
        queries = (queries.to(tl.float32) * 0.5).to(queries.dtype)
        scale_log2 *= 2
    accumulator = tl.zeros([ROWS, HEAD], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    if CAUSAL:
        whole = first // COLUMNS * COLUMNS
        last = tl.minimum(first + ROWS, length)
    else:
        whole = length // COLUMNS * COLUMNS
        last = length
    for start in tl.range(0, last, COLUMNS):
        keys = key.load([base + start, 0])
        scores = tl.dot(queries, keys.T)
        columns = start + tl.arange(0, COLUMNS)
        if start >= whole:
            if CAUSAL:
                kept = rows[:, None] >= columns[None, :]
            else:
                kept = columns[None, :] < length
            scores = tl.where(kept, scores, float("-inf"))
        highest = tl.maximum(maximum, tl.max(scores, 1) * scale_log2)
        weights = tl.math.exp2(scores * scale_log2 - highest[:, None])
        correction = tl.math.exp2(maximum - highest)
        accumulator = accumulator * correction[:, None]
        values = value.load([base + start, 0])
        accumulator = tl.dot(weights.to(values.dtype), values, accumulator)
        total = total * correction + tl.sum(weights, 1)
        maximum = highest
    inside = rows < length
    place = head.to(tl.int64) * length + rows
    tl.store(log_sum_exp + place, maximum + tl.math.log2(total), mask=inside)
    result = accumulator * (1.0 / total)[:, None]
    pointers = output + place[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(pointers, result.to(output.dtype.element_ty), mask=inside[:, None])


def describe(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """A descriptor of `tensor` as (all rows, D) that loads `rows` whole rows."""
    matrix = tensor.view(-1, tensor.shape[-1])
    return TensorDescriptor(matrix, matrix.shape, matrix.stride(), [rows, matrix.shape[1]])


def check_head_size(problem: AttentionProblem, name: str) -> None:
    """Raises `UnsupportedError` for a head size that no tile has."""
    if problem.head_size not in _HEAD_SIZES:
        sizes = ", ".join(map(str, _HEAD_SIZES))
        raise UnsupportedError(f"{name} has head sizes {sizes}, not {problem.head_size}")


def make_forward(
    problem: AttentionProblem, output: torch.Tensor, log_sum_exp: torch.Tensor, tiles: FlashTiles
) -> Callable[[], object]:
    """A launch into `output` (B, H, S, D) and `log_sum_exp` (B, H, S; float32, base 2)."""
    grid = (triton.cdiv(problem.length, tiles.rows), problem.batch * problem.heads)
    return partial(
        flash_forward[grid],
        describe(problem.query, tiles.rows),
        describe(problem.key, tiles.columns),
        describe(problem.value, tiles.columns),
        output,
        log_sum_exp,
        problem.length,
        problem.group,
        problem.scale * LOG2_E,
        CAUSAL=problem.causal,
        HEAD=problem.head_size,
        **tiles.options,
    )


def fastest_tiles(
    problem: AttentionProblem, output: torch.Tensor, log_sum_exp: torch.Tensor
) -> FlashTiles:
    """Tried on a GPU, where a sequence fills the tiles."""
    if problem.device.type != "cuda" or problem.length < _CONFIGURATIONS[0].rows:
        return SMALL
    return fastest(
        _CONFIGURATIONS, lambda tiles: make_forward(problem, output, log_sum_exp, tiles)()
    )


def prepare(problem: AttentionProblem) -> Prepared:
    if problem.mode not in ("forward", "causal-forward"):
        raise UnsupportedError("attention/triton-flash has only the forward")
    check_head_size(problem, "attention/triton-flash")
    output = torch.empty_like(problem.query)
    log_sum_exp = torch.empty(output.shape[:-1], dtype=torch.float32, device=output.device)
    tiles = fastest_tiles(problem, output, log_sum_exp)
    known = problem.work()
    executed = 4 * problem.head_size * problem.visited_pairs(tiles.rows, tiles.columns)
    return Prepared(
        call=make_forward(problem, output, log_sum_exp, tiles),
        outputs=(output,),
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        expected_bytes_read=known.bytes_read,
        expected_bytes_written=known.bytes_written + log_sum_exp.nbytes,
        note=f"tiles (queries x keys): {tiles}",
    )
