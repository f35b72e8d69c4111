"""CUDA C++ compiled while the program runs, by NVRTC through cuda-core (extra `cuda`).

Compiling needs no GPU, so that sources are checked where there is none; launching does.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpuprof.collectors.distribution import with_extra
from gpuprof.collectors.errors import GpuprofError, MissingDependencyError

# A tensor is passed as its pointer, a float as float32; integers say their width.
KernelArgument = torch.Tensor | float | np.generic | ctypes._SimpleCData  # type: ignore[type-arg]


class CompilationError(GpuprofError):
    """NVRTC refused a source; the message holds its log."""


@dataclass(frozen=True)
class CompiledProgram:
    """Machine code of one source for one architecture."""

    name: str
    architecture: str
    code: bytes


def compile_source(source: str, *, architecture: str, name: str = "kernel.cu") -> CompiledProgram:
    """Compile C++17 `source` for `architecture` ("sm_90a"). Kernels must be `extern "C"`.

    CUDA's own headers (<mma.h>, <cuda_fp16.h>, <cuda/std/...>) are found in NVIDIA's wheels or in
    an installed toolkit.

    Raises `MissingDependencyError` without cuda-core or NVRTC, `CompilationError` where the
    source does not compile.
    """
    program_type, options_type = _compiler()
    settings = options_type(
        name=name,
        arch=architecture,
        std="c++17",
        include_path=[str(folder) for folder in _header_folders()],
    )

    def compile_cubin() -> bytes:
        return bytes(program_type(source, "c++", settings).compile("cubin").code)

    # NVRTC 12 leaves its thread in the C locale, in which Python reads every file as ASCII.
    with ThreadPoolExecutor(max_workers=1) as thread:
        try:
            code = thread.submit(compile_cubin).result()
        # cuda-core exports none of its errors, and they share no other base.
        except Exception as error:
            raise CompilationError(
                f"{name} for {architecture} does not compile: {error}"
            ) from error
    return CompiledProgram(name, architecture, code)


def architecture_of(device: torch.device | str | int | None = None) -> str:
    """What to compile for to run on `device` (default: the current one): "sm_80", "sm_90a".

    From Hopper on, the letter lets a source use what only this generation has (wgmma, tcgen05).
    """
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


class CudaKernel:
    """One kernel of a compiled program, loaded at its first launch."""

    def __init__(self, program: CompiledProgram, name: str) -> None:
        self.name = name
        self._program = program
        self._loaded: Any = None
        self._shared_memory_asked: dict[int, int] = {}

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        *arguments: KernelArgument,
        shared_memory_bytes: int = 0,
        cluster: int = 1,
    ) -> None:
        """Queue the kernel on torch's current stream; so many blocks of it are a `cluster`.

        Tensors are passed as pointers and must live until the kernel ends, as for every kernel on
        another stream. A Python float is passed as float32; an integer needs a width, `np.int32(n)`
        or `ctypes.c_int64(n)`: a plain int raises `TypeError`.
        """
        self.prepare(
            grid, block, *arguments, shared_memory_bytes=shared_memory_bytes, cluster=cluster
        )()

    def prepare(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        *arguments: KernelArgument,
        shared_memory_bytes: int = 0,
        cluster: int = 1,
    ) -> Callable[[], None]:
        """A call that does what `launch` would do now, again and again and at less cost.

        The stream is the one that is current now. The call keeps its tensors alive.
        """
        from cuda.core import LaunchConfig, launch

        kernel = self._load()
        device = torch.cuda.current_device()
        # 48 KiB are had without asking, but for what the kernel has of static shared memory.
        if shared_memory_bytes > self._shared_memory_asked.get(device, 0):
            self._ask_for_shared_memory(device, shared_memory_bytes)
        # cuda-core counts the grid in clusters.
        shape = {"cluster": (cluster, 1, 1)} if cluster > 1 else {}
        blocks = (grid[0] // cluster, *grid[1:])
        config = LaunchConfig(grid=blocks, block=block, shmem_size=shared_memory_bytes, **shape)
        stream = _stream(torch.cuda.current_stream().cuda_stream)
        passed = [as_kernel_argument(argument) for argument in arguments]

        def queue(_alive: tuple[KernelArgument, ...] = arguments) -> None:
            launch(stream, config, kernel, *passed)

        return queue

    def _load(self) -> Any:
        if self._loaded is None:
            from cuda.core import Device, ObjectCode

            # The context is torch's; cuda-core wants to be told of it.
            Device(torch.cuda.current_device()).set_current()
            module = ObjectCode.from_cubin(self._program.code, name=self._program.name)
            self._loaded = module.get_kernel(self.name)
        return self._loaded

    def _ask_for_shared_memory(self, device: int, size: int) -> None:
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuKernelSetAttribute(attribute, size, self._loaded.handle, device)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"{self.name}: no {size} bytes of shared memory a block ({status})")
        self._shared_memory_asked[device] = size


@cache
def _stream(handle: int) -> Any:
    """cuda-core's view of one of torch's streams, which live as long as the process."""
    from cuda.core import Stream

    return Stream.from_handle(handle)


def as_kernel_argument(argument: KernelArgument) -> Any:
    """What cuda-core is given for `argument`. Raises `TypeError` for a plain int."""
    if isinstance(argument, torch.Tensor):
        # cuda-core passes a plain int as a pointer.
        return argument.data_ptr()
    if isinstance(argument, int):
        raise TypeError(f"{argument!r} has no width: pass np.int32 or np.int64")
    return np.float32(argument) if type(argument) is float else argument


def _header_folders() -> tuple[Path, ...]:
    """Folders with CUDA's headers: NVIDIA's wheels first, then an installed toolkit."""
    from cuda import pathfinder

    found = [pathfinder.find_nvidia_header_directory(library) for library in ("cudart", "cccl")]
    roots = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    for root in (*(root for root in roots if root), "/usr/local/cuda"):
        # Where wheels lack a part (crt/mma.h has a wheel of its own), the toolkit has it.
        found += [f"{root}/include", f"{root}/include/cccl"]
    return tuple(
        dict.fromkeys(Path(folder) for folder in found if folder and Path(folder).is_dir())
    )


def _compiler() -> tuple[Any, Any]:
    """cuda-core's Program and ProgramOptions, once NVRTC is known to be there."""
    missing = MissingDependencyError("cuda-core with NVRTC", "compile CUDA C++", with_extra("cuda"))
    try:
        from cuda import pathfinder
        from cuda.core import Program, ProgramOptions
    except ImportError as error:
        raise missing from error
    try:
        pathfinder.load_nvidia_dynamic_lib("nvrtc")
    except pathfinder.DynamicLibNotFoundError as error:
        raise missing from error
    return Program, ProgramOptions
