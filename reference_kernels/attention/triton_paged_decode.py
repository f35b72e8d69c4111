"""Decoding from a paged cache in Triton: pages are read in place through the block table.

Sources: Kwon et al., "PagedAttention" (2023), for the block table; Dao et al., "Flash-Decoding"
(2023), for splitting the sequence: one query a sequence makes too few programs otherwise. A
program takes one key head of one split and all the query heads of its group, padded to the 16 rows
that a matrix instruction has. A second kernel weighs the splits' results together; where there is
one split a sequence, its program writes the output itself, which is 1.5 % of an H200's time.

FLOPs: 4 D a (query head, token) pair by definition; the padding to 16 rows executes 16 / (H / K)
times that, and ragged ends a little more (`executed_flops`). Bytes: compulsory, and the results of
several splits in float32, written and read once.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import torch
import triton
import triton.language as tl

from gpuprof.reference_kernels.attention.problem import PAGE_TOKENS, AttentionProblem
from gpuprof.reference_kernels.attention.triton_flash import LOG2_E, check_head_size
from gpuprof.reference_kernels.multiprocessors import multiprocessors
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

# Rows of the smallest matrix product that tl.dot has.
_LEAST_ROWS = 16
# Programs a multiprocessor that keep enough loads in flight.
_PROGRAMS_PER_MULTIPROCESSOR = 4


@triton.jit
def decode_split(
    query,
    key_pages,
    value_pages,
    block_table,
    lengths,
    output,
    partial,
    partial_log_sum_exp,
    key_heads,
    pages_per_sequence,
    tokens_per_split,
    scale_log2,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD: tl.constexpr,
    PAGE: tl.constexpr,
    COLUMNS: tl.constexpr,
    ALONE: tl.constexpr,
):
    """One split of one sequence for one key head; grid (splits, key heads, sequences).

    `partial` (B, H, splits, HEAD) and `partial_log_sum_exp` (B, H, splits; base 2) in float32; a
    split beyond the sequence's end has a log-sum-exp of -inf. ALONE, the only split of each
    sequence, writes `output` (B, H, HEAD) in their place.
    """
    split, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(0)
    length = tl.load(lengths + sequence)
    first = split * tokens_per_split
    last = tl.minimum(first + tokens_per_split, length)
    member = tl.arange(0, ROWS)
    within = tl.arange(0, HEAD)
    query_head = (sequence * key_heads + head) * GROUP + member
    real = member < GROUP
    queries = tl.load(
        query + query_head[:, None] * HEAD + within[None, :], mask=real[:, None], other=0.0
    )
    accumulator = tl.zeros([ROWS, HEAD], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    for start in tl.range(first, last, COLUMNS):
        tokens = start + tl.arange(0, COLUMNS)
        inside = tokens < last
        page = tl.load(
            block_table + sequence * pages_per_sequence + tokens // PAGE, mask=inside, other=0
        )
        row = (page.to(tl.int64) * key_heads + head) * PAGE + tokens % PAGE
        place = row[:, None] * HEAD + within[None, :]
        keys = tl.load(key_pages + place, mask=inside[:, None], other=0.0)
        values = tl.load(value_pages + place, mask=inside[:, None], other=0.0)
        scores = tl.where(inside[None, :], tl.dot(queries, keys.T) * scale_log2, float("-inf"))
        highest = tl.maximum(maximum, tl.max(scores, 1))
        weights = tl.math.exp2(scores - highest[:, None])
        correction = tl.math.exp2(maximum - highest)
        accumulator = accumulator * correction[:, None]
        accumulator = tl.dot(weights.to(values.dtype), values, accumulator)
        total = total * correction + tl.sum(weights, 1)
        maximum = highest
    if ALONE:
        place = query_head.to(tl.int64)[:, None] * HEAD + within[None, :]
        result = accumulator / total[:, None]
        tl.store(output + place, result.to(output.dtype.element_ty), mask=real[:, None])
    else:
        place = query_head.to(tl.int64) * splits + split
        empty = first >= length
        shift = tl.where(empty, float("-inf"), maximum + tl.math.log2(tl.where(empty, 1.0, total)))
        tl.store(partial_log_sum_exp + place, shift, mask=real)
        result = accumulator / tl.where(empty, 1.0, total)[:, None]
        tl.store(partial + place[:, None] * HEAD + within[None, :], result, mask=real[:, None])


@triton.jit
def decode_combine(
    partial, partial_log_sum_exp, output, splits, HEAD: tl.constexpr, SPLITS: tl.constexpr
):
    """output = sum of the splits weighed by their share of the softmax; grid (B * H,)."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    within = tl.arange(0, HEAD)
    inside = split < splits
    shift = tl.load(partial_log_sum_exp + row * splits + split, mask=inside, other=float("-inf"))
    weights = tl.math.exp2(shift - tl.max(shift, 0))
    place = (row * splits + split)[:, None] * HEAD + within[None, :]
    parts = tl.load(partial + place, mask=inside[:, None], other=0.0)
    result = tl.sum(parts * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(output + row * HEAD + within, result.to(output.dtype.element_ty))


def choose_splits(problem: AttentionProblem) -> int:
    """As many splits as fill the GPU, each of at least 128 tokens."""
    most = max(1, problem.length // 128)
    if problem.device.type != "cuda":
        return min(most, 2)
    processors = multiprocessors(problem.device)
    programs = problem.batch * problem.key_heads
    return min(most, max(1, round(_PROGRAMS_PER_MULTIPROCESSOR * processors / programs)))


def prepare(problem: AttentionProblem) -> Prepared:
    if problem.mode != "decode":
        raise UnsupportedError("attention/triton-paged-decode has only decode")
    check_head_size(problem, "attention/triton-paged-decode")
    return prepare_with(problem, splits=choose_splits(problem), columns=64, warps=2, stages=3)


def prepare_with(
    problem: AttentionProblem, *, splits: int, columns: int, warps: int, stages: int
) -> Prepared:
    """As `prepare`, with these splits of a sequence, tokens a step, warps and stages."""
    output = torch.empty_like(problem.query)
    alone = splits == 1
    shape = (problem.batch, problem.heads, splits)
    shifts = torch.empty(shape, dtype=torch.float32, device=output.device)
    partial = torch.empty(*shape, problem.head_size, dtype=torch.float32, device=output.device)
    rows = max(_LEAST_ROWS, triton.next_power_of_2(problem.group))
    # Whole steps, so that only the last split has a ragged end.
    tokens = triton.cdiv(triton.cdiv(problem.length, splits), columns) * columns

    def call() -> None:
        decode_split[(splits, problem.key_heads, problem.batch)](
            problem.query,
            problem.key_pages,
            problem.value_pages,
            problem.block_table,
            problem.lengths,
            output,
            partial,
            shifts,
            problem.key_heads,
            problem.block_table.shape[1],
            tokens,
            problem.scale * LOG2_E,
            GROUP=problem.group,
            ROWS=rows,
            HEAD=problem.head_size,
            PAGE=PAGE_TOKENS,
            COLUMNS=columns,
            ALONE=alone,
            num_warps=warps,
            num_stages=stages,
        )
        if not alone:
            decode_combine[(problem.batch * problem.heads,)](
                partial,
                shifts,
                output,
                splits,
                HEAD=problem.head_size,
                SPLITS=triton.next_power_of_2(splits),
            )

    known = problem.work()
    visited = sum(
        triton.cdiv(min(tokens, length - first), columns) * columns
        for length in problem.lengths.tolist()
        for first in range(0, length, tokens)
    )
    between = 0 if alone else partial.nbytes + shifts.nbytes
    executed = 4 * problem.head_size * rows * problem.key_heads * visited
    return Prepared(
        call=call,
        outputs=(output,),
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        expected_bytes_read=known.bytes_read + between,
        expected_bytes_written=known.bytes_written + between,
        note=f"{splits} splits of {tokens} tokens, {columns} a step",
    )
