"""CUDA C++: FlashAttention-3's forward.

Against triton-flash: the two kinds of work are set against each other on purpose. Exponentials run
on units that are a 256th as fast as the tensor cores, so of two warpgroups one multiplies while the
other takes exponentials, handing the tensor cores over at a barrier; and within one the products of
a block of weights with their values run beside the scores of the next. A third brings the tiles by
TMA. Tiles of queries are shared out beforehand, longest first, so that all multiprocessors end
together.

FLOPs: 4 D a pair of the tiles visited, of 128 queries by 128 keys (`executed_flops`).
Bytes: compulsory and one float32 log-sum-exp a row. Expected: the same; keys and values are read
once by each tile of queries, from the L2, in which those of eight heads lie at a time.

Source: Shah et al., "FlashAttention-3" (2024), algorithms 1 and 2.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.hopper.program import (
    ALIGNMENT_BYTES,
    THREADS,
    compile_kernel,
    require_hopper,
)
from gpuprof.reference_kernels.hopper.schedule import schedule
from gpuprof.reference_kernels.hopper.tensor_maps import tile_map
from gpuprof.reference_kernels.multiprocessors import multiprocessors
from gpuprof.reference_kernels.nvrtc import CudaKernel
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

_NAME = "attention/cuda-flash"
HEAD_SIZES = (64, 128)
# Numbers of a row of a tile in shared memory.
ROW_NUMBERS = 64
_ROWS = _COLUMNS = 128
# Heads whose tiles are in work at one time: their keys and values stay in the L2.
HEADS_TOGETHER = 8
# Of an item, in blocks of keys: its queries come and its output leaves.
_ENDS = 0.6


def compile_forward(head_size: int, *, bf16: bool, causal: bool) -> CudaKernel:
    """The kernel for heads of 64 or 128 numbers; needs no GPU."""
    return compile_kernel(
        Path(__file__).with_name("cuda_flash.cu"),
        "flash",
        BF16=int(bf16),
        HEAD=head_size,
        CAUSAL=int(causal),
    )


def head_map(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """A map of (B, H, S, D) in tiles of `rows` rows of one head; no tile leaves its head."""
    return tile_map(tensor.view(-1, *tensor.shape[-2:]), (1, rows, ROW_NUMBERS))


def make_forward(
    problem: AttentionProblem, output: torch.Tensor, log_sum_exp: torch.Tensor
) -> Callable[[], None]:
    """A launch into `output` (B, H, S, D) and `log_sum_exp` (B, H, S; float32, base 2)."""
    size, length = problem.head_size, problem.length
    tiles = -(-length // _ROWS)
    heads = problem.batch * problem.heads
    items = (
        (tile, head, _ENDS + (tile + 1 if problem.causal else tiles))
        for first in range(0, heads, HEADS_TOGETHER)
        for tile in reversed(range(tiles))
        for head in range(first, min(first + HEADS_TOGETHER, heads))
    )
    blocks = multiprocessors(output.device)
    kernel = compile_forward(size, bf16=problem.dtype == "bf16", causal=problem.causal)
    # Queries, two stages of keys and of values, and what leaves.
    tile_count = 1 + 2 * 2 + 1
    return partial(
        kernel.launch,
        (blocks, 1, 1),
        (THREADS, 1, 1),
        head_map(problem.query, _ROWS),
        head_map(problem.key, _COLUMNS),
        head_map(problem.value, _COLUMNS),
        # Each warpgroup stores its half.
        head_map(output, _ROWS // 2),
        log_sum_exp,
        schedule(items, blocks).to(output.device),
        np.int32(length),
        np.int32(problem.group),
        problem.scale * math.log2(math.e),
        shared_memory_bytes=ALIGNMENT_BYTES + tile_count * _ROWS * size * output.element_size(),
    )


def prepare(problem: AttentionProblem) -> Prepared:
    """Forward and causal forward with heads of 64 or 128 numbers."""
    if problem.mode not in ("forward", "causal-forward"):
        raise UnsupportedError(f"{_NAME} has only the forward")
    if problem.head_size not in HEAD_SIZES:
        sizes = " and ".join(map(str, HEAD_SIZES))
        raise UnsupportedError(f"{_NAME} has head sizes {sizes}, not {problem.head_size}")
    require_hopper(_NAME, problem.device)
    output = torch.empty_like(problem.query)
    log_sum_exp = torch.empty(output.shape[:-1], dtype=torch.float32, device=output.device)
    known = problem.work()
    executed = 4 * problem.head_size * problem.visited_pairs(_ROWS, _COLUMNS)
    return Prepared(
        call=make_forward(problem, output, log_sum_exp),
        outputs=(output,),
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        expected_bytes_read=known.bytes_read,
        expected_bytes_written=known.bytes_written + log_sum_exp.nbytes,
        note=f"tiles of {_ROWS} queries x {_COLUMNS} keys",
    )
