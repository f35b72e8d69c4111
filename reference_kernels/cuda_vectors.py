"""Compiling the suite's memory-bound CUDA C++, whose kernels move 16-byte vectors."""

from dataclasses import dataclass
from pathlib import Path

import torch

from gpuprof.reference_kernels.multiprocessors import multiprocessors
from gpuprof.reference_kernels.nvrtc import CudaKernel, compile_source
from gpuprof.reference_kernels.suite import TORCH_DTYPES

_ELEMENTS = {"fp32": "float", "fp16": "__half", "bf16": "__nv_bfloat16"}
_VECTOR_BYTES = 16
_SHARED = Path(__file__).with_suffix(".cu")
# Elements of a row that a thread may hold: enough bytes in flight, few enough registers.
_ELEMENTS_PER_THREAD = (16, 32, 64)
_MOST_THREADS = 1024
# Threads of a multiprocessor that hold so many bytes of a row each: the compiler keeps to 40 and 80
# registers.
_THREADS_TOGETHER = {64: 1536, 128: 768}
_WARP = 32
# Of a row that a block holds: 32 a thread, more spill.
MOST_COLUMNS = 32768


def vector_size(dtype: str, *lengths: int) -> int:
    """Elements that move at once where rows of all `lengths` begin on 16 bytes, else 1."""
    size = _VECTOR_BYTES // TORCH_DTYPES[dtype].itemsize
    return size if all(length % size == 0 for length in lengths) else 1


@dataclass(frozen=True)
class RowShare:
    """How a block shares out a row: each of `threads` holds `items` vectors of `vector`.

    `blocks` of them registers must leave room for on a multiprocessor.
    """

    vector: int
    threads: int
    items: int
    blocks: int

    @property
    def note(self) -> str:
        return f"{self.threads} threads of {self.items} x {self.vector} elements a row"


def row_shares(columns: int, dtype: str) -> tuple[RowShare, ...]:
    """About 16, 32 and 64 elements a thread, more where a row of `columns` asks for more threads
    than a block has."""
    vector = vector_size(dtype, columns)
    vectors = -(-columns // vector)
    shares = []
    for elements in _ELEMENTS_PER_THREAD:
        items = max(elements // vector, -(-vectors // _MOST_THREADS))
        threads = -(-vectors // items // _WARP) * _WARP
        held_bytes = items * vector * TORCH_DTYPES[dtype].itemsize
        together = max(
            (n for held, n in _THREADS_TOGETHER.items() if held >= held_bytes), default=0
        )
        blocks = max(1, together // threads)
        shares.append(RowShare(vector, threads, items, blocks))
    return tuple(dict.fromkeys(shares))


def blocks_ahead(device: torch.device) -> int:
    """How far ahead of itself a block asks for a row: on an H200 16 to 132 differ little."""
    return multiprocessors(device) // 2


def compile_kernel(
    source: Path, name: str, *, dtype: str, vector: int, architecture: str, **constants: int
) -> CudaKernel:
    """Kernel `name` of `source`, with `constants` as macros; needs no GPU."""
    macros = {"ELEMENT": _ELEMENTS[dtype], "VECTOR": vector, **constants}
    defined = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
    text = f'{defined}#line 1 "{_SHARED.name}"\n{_SHARED.read_text()}'
    text += f'#line 1 "{source.name}"\n{source.read_text()}'
    return CudaKernel(compile_source(text, architecture=architecture, name=source.name), name)
