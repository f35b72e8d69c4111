"""CUDA C++: the backward in one pass over the scores.

Against triton-flash-backward: scores and dO V^T are computed once, 10 D FLOPs a pair instead of 14
D. A block keeps 128 keys and their gradients and walks over the queries; what it finds of dQ is
added to sums in device memory by the copy engine, which reads them from shared memory while the
next products run. They lie there in the order of the registers, so nothing is transposed, and a
last kernel makes rows of them. Blocks add in no fixed order: dQ differs from run to run by
rounding.

FLOPs: 10 D a pair of the tiles visited, of 64 queries by 128 keys (`executed_flops`).
Bytes: compulsory; dO once more for delta, and the sums of dQ in float32, which are cleared, added
to and read. Expected: that, with the sums written twice and read twice.

Source: Shah et al., "FlashAttention-3" (2024), appendix B.1; Dao, "FlashAttention-2" (2023),
algorithm 2.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gpuprof.reference_kernels.attention.cuda_flash import (
    HEADS_TOGETHER,
    head_map,
    make_forward,
)
from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.hopper.program import (
    ALIGNMENT_BYTES,
    THREADS,
    compile_kernel,
    require_hopper,
)
from gpuprof.reference_kernels.hopper.schedule import schedule
from gpuprof.reference_kernels.multiprocessors import multiprocessors
from gpuprof.reference_kernels.nvrtc import CudaKernel
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

_NAME = "attention/cuda-flash-backward"
_HEAD_SIZE = 128
_QUERIES, _KEYS = 64, 128
# Of an item, in tiles of queries: its keys come and their gradients leave.
_ENDS = 1.5
# Rows of a block of the kernel before, threads of a block of the two kernels beside.
_ROWS, _SMALL_THREADS = 8, 256
# Keys and values; two stages of queries and dO with their row sums; weights; what leaves.
_SHARED_MEMORY_BYTES = (
    ALIGNMENT_BYTES
    + 2 * _KEYS * _HEAD_SIZE * 2
    + 2 * 2 * (_QUERIES * _HEAD_SIZE * 2 + _QUERIES * 4)
    + _KEYS * _QUERIES * 2
    + 2 * 64 * 64 * 4
)


def compile_backward(name: str, *, bf16: bool, causal: bool) -> CudaKernel:
    """One of the kernels prepare, flash_backward and finish; needs no GPU."""
    return compile_kernel(
        Path(__file__).with_name("cuda_flash_backward.cu"),
        name,
        BF16=int(bf16),
        CAUSAL=int(causal),
    )


class _Backward:
    """The three kernels with their tensors."""

    def __init__(self, problem: AttentionProblem) -> None:
        self._problem = problem
        device = problem.query.device
        self._output = torch.empty_like(problem.query)
        self.log_sum_exp = torch.empty(self._output.shape[:-1], dtype=torch.float32, device=device)
        make_forward(problem, self._output, self.log_sum_exp)()
        self._tiles = -(-problem.length // _QUERIES)
        self._padded = self._tiles * _QUERIES
        self._heads = problem.batch * problem.heads
        rows = self._heads * self._padded
        self.row_sums = torch.empty(rows, dtype=torch.float32, device=device)
        self.delta = torch.empty_like(self.row_sums)
        self.query_sums = torch.empty(rows, _HEAD_SIZE, dtype=torch.float32, device=device)
        inputs = (problem.query, problem.key, problem.value)
        self.gradients = tuple(torch.empty_like(tensor) for tensor in inputs)

    def launches(self) -> tuple[Callable[[], object], ...]:
        """In order: clear the sums, delta of each row, the walk over the queries, rows of dQ."""
        return (self.query_sums.zero_, self._before(), self._walk(), self._after())

    def _kernel(self, name: str) -> CudaKernel:
        problem = self._problem
        return compile_backward(name, bf16=problem.dtype == "bf16", causal=problem.causal)

    def _before(self) -> Callable[[], None]:
        problem = self._problem
        return partial(
            self._kernel("prepare").launch,
            (-(-self._heads * self._padded // _ROWS), 1, 1),
            (_SMALL_THREADS, 1, 1),
            self._output,
            problem.output_gradient,
            self.log_sum_exp,
            self.row_sums,
            self.delta,
            *map(np.int32, (problem.length, self._padded, self._heads)),
        )

    def _walk(self) -> Callable[[], None]:
        problem = self._problem
        blocks = multiprocessors(problem.query.device)
        _, of_key, of_value = self.gradients
        return partial(
            self._kernel("flash_backward").launch,
            (blocks, 1, 1),
            (THREADS, 1, 1),
            head_map(problem.query, _QUERIES),
            head_map(problem.key, _KEYS),
            head_map(problem.value, _KEYS),
            head_map(problem.output_gradient, _QUERIES),
            # Each warpgroup stores its half.
            head_map(of_key, _KEYS // 2),
            head_map(of_value, _KEYS // 2),
            self.row_sums,
            self.delta,
            self.query_sums,
            schedule(self._items(), blocks).to(problem.query.device),
            *map(np.int32, (problem.length, self._padded, problem.group)),
            problem.scale,
            problem.scale * math.log2(math.e),
            shared_memory_bytes=_SHARED_MEMORY_BYTES,
        )

    def _items(self) -> list[tuple[int, int, float]]:
        """The first keys have the most queries where it is causal."""
        problem = self._problem
        heads = problem.batch * problem.key_heads
        skipped = _KEYS // _QUERIES if problem.causal else 0
        return [
            (tile, head, _ENDS + max(0, self._tiles - skipped * tile) * problem.group)
            for first in range(0, heads, HEADS_TOGETHER)
            for tile in range(-(-problem.length // _KEYS))
            for head in range(first, min(first + HEADS_TOGETHER, heads))
        ]

    def _after(self) -> Callable[[], None]:
        problem = self._problem
        return partial(
            self._kernel("finish").launch,
            (self._heads * self._tiles, 1, 1),
            (_SMALL_THREADS, 1, 1),
            self.query_sums,
            self.gradients[0],
            *map(np.int32, (problem.length, self._tiles)),
            problem.scale,
        )


def prepare(problem: AttentionProblem) -> Prepared:
    """The forward's output and log-sum-exp are computed here, once, by cuda-flash."""
    if not problem.backward:
        raise UnsupportedError(f"{_NAME} has only the backward")
    if problem.head_size != _HEAD_SIZE:
        raise UnsupportedError(f"{_NAME} has head size {_HEAD_SIZE}, not {problem.head_size}")
    require_hopper(_NAME, problem.device)
    kernels = _Backward(problem)
    launches = kernels.launches()

    def call() -> None:
        for launch in launches:
            launch()

    known = problem.work()
    executed = 10 * _HEAD_SIZE * problem.visited_pairs(_QUERIES, _KEYS)
    rows = kernels.row_sums.nbytes + kernels.delta.nbytes
    sums = 2 * kernels.query_sums.nbytes
    return Prepared(
        call=call,
        outputs=kernels.gradients,
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        expected_bytes_read=known.bytes_read + problem.output_gradient.nbytes + rows + sums,
        expected_bytes_written=known.bytes_written + rows + sums,
        note=f"tiles of {_QUERIES} queries x {_KEYS} keys",
    )
