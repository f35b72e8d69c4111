"""FlashAttention-2 backward in Triton.

Source: Dao, "FlashAttention-2" (2023), algorithm 2. A first kernel takes delta = rowsum(O dO). In
the second a program keeps COLUMNS keys and values and walks over the queries that see them, of
every query head of the group: scores again, dV += P^T dO, dS = P (dO V^T - delta), dK += dS^T Q.
In the third a program keeps ROWS queries and walks over the keys: dQ += dS K. Each gradient is
written once, by one program, so that results are the same in every run; the price is that scores
and dO V^T are computed in both. Adding dQ up by atomics in the second kernel instead was slower on
an H100, 4.3 ms against 3.3 (S = 4096, D = 128, causal): its accumulators no longer fit registers.

FLOPs: 14 D a pair of the tiles visited, 8 D in the second kernel and 6 D in the third, against
10 D a kept pair by definition (`executed_flops`). Bytes: compulsory, and once more Q, K, V and dO
for the third kernel, O and dO for the first; delta written once and read twice. Counted on an
H100: these FLOPs and bytes read, and less written, as some still lies in the L2.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.attention.triton_flash import (
    LOG2_E,
    SMALL,
    FlashTiles,
    check_head_size,
    describe,
    fastest_tiles,
    make_forward,
)
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops

_DELTA_ROWS = 64
# Shorter sequences take the tiles of Triton's interpreter.
_LEAST_LENGTH = 64
# Of the second and the third kernel.
_FOR_KEYS = (FlashTiles(64, 64, 4, 2), FlashTiles(64, 128, 8, 3))
_FOR_QUERIES = (FlashTiles(128, 64, 8, 3), FlashTiles(64, 64, 4, 2))


@triton.jit
def backward_delta(output, gradient, delta, count, HEAD: tl.constexpr, ROWS: tl.constexpr):
    """delta = rowsum(output * gradient) of `count` rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < count
    place = rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    out = tl.load(output + place, mask=inside[:, None], other=0.0).to(tl.float32)
    grad = tl.load(gradient + place, mask=inside[:, None], other=0.0).to(tl.float32)
    tl.store(delta + rows, tl.sum(out * grad, 1), mask=inside)


@triton.jit
def _visit_queries(
    key_gradient,
    value_gradient,
    keys,
    values,
    query,
    gradient,
    log_sum_exp,
    delta,
    base,
    columns,
    first,
    last,
    length,
    scale_log2,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr,
):
    for start in tl.range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)
        queries = query.load([base + start, 0])
        # A row beyond the end weighs exp2(-inf) = 0.
        shift = tl.load(log_sum_exp + base + rows, mask=rows < length, other=float("inf"))
        scores = tl.dot(keys, queries.T)
        weights = tl.math.exp2(scores * scale_log2 - shift[None, :])
        if MASKED:
            if CAUSAL:
                kept = rows[None, :] >= columns[:, None]
            else:
                kept = columns[:, None] < length
            weights = tl.where(kept, weights, 0.0)
        gradients = gradient.load([base + start, 0])
        value_gradient = tl.dot(weights.to(gradients.dtype), gradients, value_gradient)
        subtract = tl.load(delta + base + rows, mask=rows < length, other=0.0)
        score_gradient = weights * (tl.dot(values, gradients.T) - subtract[None, :])
        score_gradient = score_gradient.to(queries.dtype)
        key_gradient = tl.dot(score_gradient, queries, key_gradient)
    return key_gradient, value_gradient


@triton.jit
def backward_key_value(
    query,
    key,
    value,
    gradient,
    key_gradient,
    value_gradient,
    log_sum_exp,
    delta,
    length,
    group,
    scale,
    scale_log2,
    CAUSAL: tl.constexpr,
    HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """dK and dV of COLUMNS keys; grid (tiles of keys, key heads of all sequences)."""
    head = tl.program_id(1)
    first = tl.program_id(0) * COLUMNS
    columns = first + tl.arange(0, COLUMNS)
    keys = key.load([head * length + first, 0])
    values = value.load([head * length + first, 0])
    of_keys = tl.zeros([COLUMNS, HEAD], tl.float32)
    of_values = tl.zeros([COLUMNS, HEAD], tl.float32)
    if CAUSAL:
        start = first // ROWS * ROWS
        whole = tl.minimum(start + tl.cdiv(first + COLUMNS - start, ROWS) * ROWS, length)
    else:
        start = 0
        whole = 0
        if first + COLUMNS > length:
            whole = length
    for member in range(group):
        base = (head * group + member) * length
        of_keys, of_values = _visit_queries(
            of_keys, of_values, keys, values, query, gradient, log_sum_exp, delta, base, columns,
            start, whole, length, scale_log2, True, CAUSAL, ROWS,
        )  # fmt: skip
        of_keys, of_values = _visit_queries(
            of_keys, of_values, keys, values, query, gradient, log_sum_exp, delta, base, columns,
            whole, length, length, scale_log2, False, CAUSAL, ROWS,
        )  # fmt: skip
    inside = (columns < length)[:, None]
    place = (head.to(tl.int64) * length + columns)[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    dtype = key_gradient.dtype.element_ty
    tl.store(key_gradient + place, (of_keys * scale).to(dtype), mask=inside)
    tl.store(value_gradient + place, of_values.to(dtype), mask=inside)


@triton.jit
def _visit_keys(
    accumulator,
    queries,
    gradients,
    key,
    value,
    shift,
    subtract,
    base,
    rows,
    first,
    last,
    length,
    scale_log2,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    for start in tl.range(first, last, COLUMNS):
        keys = key.load([base + start, 0])
        values = value.load([base + start, 0])
        scores = tl.dot(queries, keys.T)
        weights = tl.math.exp2(scores * scale_log2 - shift[:, None])
        if MASKED:
            columns = start + tl.arange(0, COLUMNS)
            if CAUSAL:
                kept = rows[:, None] >= columns[None, :]
            else:
                kept = columns[None, :] < length
            weights = tl.where(kept, weights, 0.0)
        score_gradient = weights * (tl.dot(gradients, values.T) - subtract[:, None])
        accumulator = tl.dot(score_gradient.to(keys.dtype), keys, accumulator)
    return accumulator


@triton.jit
def backward_query(
    query,
    key,
    value,
    gradient,
    query_gradient,
    log_sum_exp,
    delta,
    length,
    group,
    scale,
    scale_log2,
    CAUSAL: tl.constexpr,
    HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """dQ of ROWS queries; grid (tiles of queries, query heads of all sequences)."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    first = tile * ROWS
    rows = first + tl.arange(0, ROWS)
    inside = rows < length
    place = head.to(tl.int64) * length + rows
    queries = query.load([head * length + first, 0])
    gradients = gradient.load([head * length + first, 0])
    shift = tl.load(log_sum_exp + place, mask=inside, other=float("inf"))
    subtract = tl.load(delta + place, mask=inside, other=0.0)
    base = head // group * length
    if CAUSAL:
        whole = first // COLUMNS * COLUMNS
        last = tl.minimum(first + ROWS, length)
    else:
        whole = length // COLUMNS * COLUMNS
        last = length
    accumulator = tl.zeros([ROWS, HEAD], tl.float32)
    accumulator = _visit_keys(
        accumulator, queries, gradients, key, value, shift, subtract, base, rows, 0, whole,
        length, scale_log2, False, CAUSAL, COLUMNS,
    )  # fmt: skip
    accumulator = _visit_keys(
        accumulator, queries, gradients, key, value, shift, subtract, base, rows, whole, last,
        length, scale_log2, True, CAUSAL, COLUMNS,
    )  # fmt: skip
    pointers = query_gradient + place[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    result = (accumulator * scale).to(query_gradient.dtype.element_ty)
    tl.store(pointers, result, mask=inside[:, None])


class _Backward:
    """The three kernels with their tensors; a method launches one with the given tiles."""

    def __init__(self, problem: AttentionProblem) -> None:
        self.problem = problem
        self.output = torch.empty_like(problem.query)
        self.log_sum_exp = torch.empty(
            self.output.shape[:-1], dtype=torch.float32, device=self.output.device
        )
        tiles = fastest_tiles(problem, self.output, self.log_sum_exp)
        make_forward(problem, self.output, self.log_sum_exp, tiles)()
        self.delta = torch.empty_like(self.log_sum_exp)
        inputs = (problem.query, problem.key, problem.value)
        self.of_query, self.of_key, self.of_value = (torch.empty_like(t) for t in inputs)

    def make_delta(self) -> Callable[[], object]:
        rows = self.delta.numel()
        return partial(
            backward_delta[(triton.cdiv(rows, _DELTA_ROWS),)],
            self.output,
            self.problem.output_gradient,
            self.delta,
            rows,
            HEAD=self.problem.head_size,
            ROWS=_DELTA_ROWS,
        )

    def make_for_keys(self, tiles: FlashTiles) -> Callable[[], object]:
        problem = self.problem
        grid = (triton.cdiv(problem.length, tiles.columns), problem.batch * problem.key_heads)
        return partial(
            backward_key_value[grid],
            *self._described(tiles),
            self.of_key,
            self.of_value,
            *self._numbers(),
            CAUSAL=problem.causal,
            HEAD=problem.head_size,
            **tiles.options,
        )

    def make_for_queries(self, tiles: FlashTiles) -> Callable[[], object]:
        problem = self.problem
        grid = (triton.cdiv(problem.length, tiles.rows), problem.batch * problem.heads)
        return partial(
            backward_query[grid],
            *self._described(tiles),
            self.of_query,
            *self._numbers(),
            CAUSAL=problem.causal,
            HEAD=problem.head_size,
            **tiles.options,
        )

    def _described(self, tiles: FlashTiles) -> tuple[TensorDescriptor, ...]:
        """Query, key, value and output gradient."""
        problem = self.problem
        return (
            describe(problem.query, tiles.rows),
            describe(problem.key, tiles.columns),
            describe(problem.value, tiles.columns),
            describe(problem.output_gradient, tiles.rows),
        )

    def _numbers(self) -> tuple[torch.Tensor | int | float, ...]:
        problem = self.problem
        scales = (problem.scale, problem.scale * LOG2_E)
        return (self.log_sum_exp, self.delta, problem.length, problem.group, *scales)


def prepare(problem: AttentionProblem) -> Prepared:
    """The forward's output and log-sum-exp are computed here, once."""
    if not problem.backward:
        raise UnsupportedError("attention/triton-flash-backward has only the backward")
    check_head_size(problem, "attention/triton-flash-backward")
    kernels = _Backward(problem)
    for_keys = for_queries = SMALL
    if problem.device.type == "cuda" and problem.length >= _LEAST_LENGTH:
        kernels.make_delta()()
        for_keys = fastest(_FOR_KEYS, lambda tiles: kernels.make_for_keys(tiles)())
        for_queries = fastest(_FOR_QUERIES, lambda tiles: kernels.make_for_queries(tiles)())
    launches = (
        kernels.make_delta(),
        kernels.make_for_keys(for_keys),
        kernels.make_for_queries(for_queries),
    )

    def call() -> None:
        for launch in launches:
            launch()

    known, size = problem.work(), problem.head_size
    executed = 8 * size * problem.visited_pairs(for_keys.rows, for_keys.columns)
    executed += 6 * size * problem.visited_pairs(for_queries.rows, for_queries.columns)
    again = 3 * problem.query.nbytes + 2 * problem.key.nbytes + kernels.log_sum_exp.nbytes
    return Prepared(
        call=call,
        outputs=(kernels.of_query, kernels.of_key, kernels.of_value),
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        expected_bytes_read=known.bytes_read + again + 2 * kernels.delta.nbytes,
        expected_bytes_written=known.bytes_written + kernels.delta.nbytes,
        note=f"tiles (queries x keys): dK and dV {for_keys}; dQ {for_queries}",
    )
