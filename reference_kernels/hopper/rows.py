"""Kernels that take rows in turn through shared memory: how many stages and blocks there are."""

from dataclasses import dataclass
from pathlib import Path

import torch

from gpuprof.reference_kernels.cuda_vectors import (
    MOST_COLUMNS,
    RowShare,
    compile_kernel,
    share_row,
)
from gpuprof.reference_kernels.hopper.program import (
    ARCHITECTURE,
    COMMON,
    multiprocessors,
)
from gpuprof.reference_kernels.nvrtc import CudaKernel
from gpuprof.reference_kernels.suite import TORCH_DTYPES, UnsupportedError

# Of a multiprocessor, beside what is static: 227 KiB can be asked for.
_SHARED_MEMORY_BYTES = 224 * 1024
_THREADS = 1024
_MOST_STAGES = 6
_VECTOR_BYTES = 16


@dataclass(frozen=True)
class RowsInTurn:
    """How rows pass through a multiprocessor: in so many blocks, each with so many stages."""

    share: RowShare
    blocks: int
    stages: int
    row_bytes: int

    @property
    def shared_memory_bytes(self) -> int:
        return self.stages * self.row_bytes

    @property
    def note(self) -> str:
        return f"{self.share.note}, {self.blocks} blocks of {self.stages} rows a multiprocessor"

    def grid(self, rows: int, device: torch.device) -> tuple[int, int, int]:
        """As many blocks as fit the GPU, at most one a row."""
        return (min(rows, self.blocks * multiprocessors(device)), 1, 1)


def rows_in_turn(columns: int, dtype: str) -> RowsInTurn:
    """Blocks of about 1024 threads in all, sharing the multiprocessor's memory.

    Raises `UnsupportedError` where rows are not whole vectors, or two do not fit.
    """
    row_bytes = columns * TORCH_DTYPES[dtype].itemsize
    if row_bytes % _VECTOR_BYTES or columns > MOST_COLUMNS:
        raise UnsupportedError(
            f"rows in turn have up to {MOST_COLUMNS} elements and a multiple of 16 bytes, "
            f"not {columns} elements of {dtype}"
        )
    share = share_row(columns, dtype)
    blocks = max(1, _THREADS // share.threads)
    stages = min(_MOST_STAGES, _SHARED_MEMORY_BYTES // blocks // row_bytes)
    if stages < 2:
        raise UnsupportedError(f"two rows of {row_bytes} bytes do not fit shared memory")
    return RowsInTurn(share, blocks, stages, row_bytes)


def compile_rows(
    source: Path, name: str, plan: RowsInTurn, *, dtype: str, **constants: int
) -> CudaKernel:
    """Kernel `name` of `source`, which solves a row by `in_turn`; needs no GPU."""
    return compile_kernel(
        source,
        name,
        dtype=dtype,
        vector=plan.share.vector,
        architecture=ARCHITECTURE,
        beside=(COMMON, Path(__file__).with_suffix(".cu")),
        BF16=int(dtype == "bf16"),
        FP8=0,
        IN_TURN=1,
        THREADS=plan.share.threads,
        ITEMS=plan.share.items,
        STAGES=plan.stages,
        **constants,
    )
