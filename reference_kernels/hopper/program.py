"""Compiling sources that are written for Hopper, and asking for the GPU that runs them."""

from functools import cache
from pathlib import Path

import torch

from gpuprof.reference_kernels.nvrtc import (
    CompiledProgram,
    CudaKernel,
    architecture_of,
    compile_source,
)
from gpuprof.reference_kernels.suite import UnsupportedError

# wgmma exists in this generation only.
ARCHITECTURE = "sm_90a"
# A producer and two consumers of 128 threads each.
THREADS = 384
# Shared memory to ask for beside the tiles, which begin at multiples of it.
ALIGNMENT_BYTES = 1024
_COMMON = Path(__file__).with_name("common.cu")


def require_hopper(label: str, device: torch.device) -> None:
    """Raises `UnsupportedError` on a GPU of another generation."""
    architecture = architecture_of(device)
    if architecture != ARCHITECTURE:
        raise UnsupportedError(f"{label} needs {ARCHITECTURE}, this GPU is {architecture}")


def compile_kernel(source: Path, name: str, **constants: int) -> CudaKernel:
    """Kernel `name` of `source` behind common.cu, with `constants` as macros; needs no GPU.

    `constants` holds BF16; FP8 is 0 where it is left out.
    """
    return CudaKernel(_compiled(source, tuple({"FP8": 0, **constants}.items())), name)


@cache
def _compiled(source: Path, constants: tuple[tuple[str, int], ...]) -> CompiledProgram:
    text = "".join(f"#define {macro} {value}\n" for macro, value in constants)
    for path in (_COMMON, source):
        text += f'#line 1 "{path.name}"\n{path.read_text()}'
    return compile_source(text, architecture=ARCHITECTURE, name=source.name)
