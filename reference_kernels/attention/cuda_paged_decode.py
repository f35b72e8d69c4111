"""Decoding from a paged cache in CUDA C++: the copy engine reads whole pages.

Against triton-paged-decode: memory is fastest where few ask for long pieces. A block takes up to
eight key heads of a page, 32 KiB in one piece, keeps three such pieces under way, and multiplies
them by a warp a key head; pieces of 4 KiB, a page of one head, take 2 % more of an H200's time
however they are read. The splits of a sequence are blocks of one cluster, which put their results
together without a second kernel.

FLOPs: 4 D a (query head, token) pair by definition; products have 8 columns for the H / K query
heads of a key head, and whole pages (`executed_flops`). Bytes: compulsory, and the unused end of
each sequence's last page.
"""

import math
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gpuprof.reference_kernels.attention.problem import PAGE_TOKENS, AttentionProblem
from gpuprof.reference_kernels.hopper.program import (
    ALIGNMENT_BYTES,
    compile_kernel,
    require_hopper,
)
from gpuprof.reference_kernels.hopper.tensor_maps import tile_map
from gpuprof.reference_kernels.multiprocessors import multiprocessors
from gpuprof.reference_kernels.nvrtc import CudaKernel
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

_NAME = "attention/cuda-paged-decode"
HEAD_SIZES = (64, 128)
# Columns of a product.
MOST_GROUP = 8
_MOST_HEADS = 8
# A cluster that every GPU of this generation has room for.
_MOST_SPLITS = 8
# What is under way: three pieces of eight heads of 128 numbers. More make an H200 no faster.
_RING_BYTES = 96 * 1024
_MOST_STAGES = 16
# Numbers of a row of shared memory.
_ROW_NUMBERS = 64
_WARP = 32


def compile_decode(
    head_size: int, group: int, heads: int, stages: int, *, bf16: bool
) -> CudaKernel:
    """The kernel for `group` query heads a key head and `heads` of these a block; needs no GPU."""
    return compile_kernel(
        Path(__file__).with_name("cuda_paged_decode.cu"),
        "decode",
        BF16=int(bf16),
        HEAD=head_size,
        GROUP=group,
        HEADS=heads,
        STAGES=stages,
    )


def choose_splits(problem: AttentionProblem, heads: int) -> int:
    """As many blocks as the GPU has multiprocessors, or a cluster's worth a sequence."""
    programs = problem.batch * problem.key_heads // heads
    pages = problem.block_table.shape[1]
    return min(max(1, multiprocessors(problem.device) // programs), _MOST_SPLITS, pages)


def prepare(problem: AttentionProblem) -> Prepared:
    """Decoding with heads of 64 or 128 numbers in 16 bits, up to 8 query heads a key head."""
    if problem.mode != "decode":
        raise UnsupportedError(f"{_NAME} has only decode")
    if problem.head_size not in HEAD_SIZES:
        sizes = " and ".join(map(str, HEAD_SIZES))
        raise UnsupportedError(f"{_NAME} has head sizes {sizes}, not {problem.head_size}")
    if problem.dtype == "fp32":
        raise UnsupportedError(f"{_NAME} has 16-bit numbers only")
    if problem.group > MOST_GROUP:
        raise UnsupportedError(f"{_NAME} has up to {MOST_GROUP} query heads a key head")
    require_hopper(_NAME, problem.device)
    heads = math.gcd(problem.key_heads, _MOST_HEADS)
    return prepare_with(problem, heads=heads, splits=choose_splits(problem, heads))


def prepare_with(
    problem: AttentionProblem, *, heads: int, splits: int, ring_bytes: int = _RING_BYTES
) -> Prepared:
    """As `prepare`, with so many key heads a block, splits of a sequence and bytes under way."""
    element_bytes = problem.query.element_size()
    stage_bytes = heads * PAGE_TOKENS * problem.head_size * element_bytes
    stages = min(ring_bytes // stage_bytes, _MOST_STAGES)
    kernel = compile_decode(
        problem.head_size, problem.group, heads, stages, bf16=problem.dtype == "bf16"
    )
    output = torch.empty_like(problem.query)
    pages = problem.block_table.shape[1]
    pages_per_split = -(-pages // splits)
    call = partial(
        kernel.launch,
        (splits, problem.key_heads // heads, problem.batch),
        ((heads + 1) * _WARP, 1, 1),
        problem.query,
        _page_map(problem.key_pages, heads),
        _page_map(problem.value_pages, heads),
        problem.block_table,
        problem.lengths,
        output,
        np.int32(pages),
        np.int32(pages_per_split),
        problem.scale * math.log2(math.e),
        shared_memory_bytes=ALIGNMENT_BYTES + stages * stage_bytes,
        cluster=splits,
    )
    known = problem.work()
    lengths = problem.lengths.tolist()
    read = sum(-(-length // PAGE_TOKENS) * PAGE_TOKENS for length in lengths)
    unused = 2 * (read - sum(lengths)) * problem.key_heads * problem.head_size * element_bytes
    executed = 4 * problem.head_size * MOST_GROUP * problem.key_heads * read
    return Prepared(
        call=call,
        outputs=(output,),
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        expected_bytes_read=known.bytes_read + unused,
        expected_bytes_written=known.bytes_written,
        note=f"{splits} splits of {pages_per_split} pages, {heads} key heads and {stages} stages",
    )


def _page_map(pages: torch.Tensor, heads: int) -> torch.Tensor:
    """A map of (pages, K, PAGE_TOKENS, D) in tiles of `heads` heads of a page."""
    rows = pages.view(-1, pages.shape[-1] // _ROW_NUMBERS, _ROW_NUMBERS)
    return tile_map(rows, (heads * PAGE_TOKENS, *rows.shape[1:]), read_once=True)
