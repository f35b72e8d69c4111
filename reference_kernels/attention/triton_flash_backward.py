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
for the third kernel, O and dO for the first; delta written once and read twice.
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
    Tiles,
    check_head_size,
    describe,
    make_forward,
    visited_pairs,
)
from gpuprof.reference_kernels.attention.triton_flash import choose_tiles as choose_forward_tiles
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

_DELTA_ROWS = 64


def choose_tiles(length: int) -> tuple[Tiles, Tiles]:
    """Of the second and the third kernel: what was fastest on an H100 at D = 128."""
    if length < 128:
        return Tiles(16, 16, 4, 2), Tiles(16, 16, 4, 2)
    return Tiles(64, 64, 4, 2), Tiles(128, 64, 8, 3)


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


def prepare(problem: AttentionProblem) -> Prepared:
    """The forward's output and log-sum-exp are computed here, once."""
    if not problem.backward:
        raise UnsupportedError("attention/triton-flash-backward has only the backward")
    check_head_size(problem, "attention/triton-flash-backward")
    output = torch.empty_like(problem.query)
    log_sum_exp = torch.empty(output.shape[:-1], dtype=torch.float32, device=output.device)
    make_forward(problem, output, log_sum_exp, choose_forward_tiles(problem.length))()
    gradients = tuple(torch.empty_like(t) for t in (problem.query, problem.key, problem.value))
    delta = torch.empty_like(log_sum_exp)
    of_keys, of_queries = choose_tiles(problem.length)
    launches = _launches(problem, output, log_sum_exp, delta, gradients, of_keys, of_queries)

    def call() -> None:
        for launch in launches:
            launch()

    known = problem.work()
    size, pairs = problem.head_size, visited_pairs
    executed = 8 * size * pairs(problem, of_keys.rows, of_keys.columns)
    executed += 6 * size * pairs(problem, of_queries.rows, of_queries.columns)
    again = problem.query.nbytes * 3 + problem.key.nbytes * 2 + log_sum_exp.nbytes
    return Prepared(
        call=call,
        outputs=gradients,
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        expected_bytes_read=known.bytes_read + again + 2 * delta.nbytes,
        expected_bytes_written=known.bytes_written + delta.nbytes,
        note=f"tiles (queries x keys, warps, stages): dK and dV {of_keys}, dQ {of_queries}",
    )


def _launches(
    problem: AttentionProblem,
    output: torch.Tensor,
    log_sum_exp: torch.Tensor,
    delta: torch.Tensor,
    gradients: tuple[torch.Tensor, ...],
    of_keys: Tiles,
    of_queries: Tiles,
) -> tuple[Callable[[], object], ...]:
    """The three kernels, in their order."""
    of_query, of_key, of_value = gradients
    rows = log_sum_exp.numel()
    inputs = (problem.query, problem.key, problem.value, problem.output_gradient)

    def described(tiles: Tiles) -> list[TensorDescriptor]:
        heights = (tiles.rows, tiles.columns, tiles.columns, tiles.rows)
        return [describe(t, height) for t, height in zip(inputs, heights, strict=True)]

    def options(tiles: Tiles) -> dict[str, object]:
        return {
            "CAUSAL": problem.causal,
            "HEAD": problem.head_size,
            "ROWS": tiles.rows,
            "COLUMNS": tiles.columns,
            "num_warps": tiles.warps,
            "num_stages": tiles.stages,
        }

    numbers = (problem.length, problem.group, problem.scale, problem.scale * LOG2_E)
    key_grid = (triton.cdiv(problem.length, of_keys.columns), problem.batch * problem.key_heads)
    query_grid = (triton.cdiv(problem.length, of_queries.rows), problem.batch * problem.heads)
    return (
        partial(
            backward_delta[(triton.cdiv(rows, _DELTA_ROWS),)],
            output,
            problem.output_gradient,
            delta,
            rows,
            HEAD=problem.head_size,
            ROWS=_DELTA_ROWS,
        ),
        partial(
            backward_key_value[key_grid],
            *described(of_keys),
            of_key,
            of_value,
            log_sum_exp,
            delta,
            *numbers,
            **options(of_keys),
        ),
        partial(
            backward_query[query_grid],
            *described(of_queries),
            of_query,
            log_sum_exp,
            delta,
            *numbers,
            **options(of_queries),
        ),
    )
