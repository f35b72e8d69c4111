"""The environment of the live process: what decides how fast the same program runs.

Each fact is asked for on its own, and one that cannot be had is None. With torch and a GPU this
starts CUDA in the process, so it is called when the program has done so itself, or is done.
"""

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from gpuprof.collectors.live.cpu_caches import last_level_cache_bytes
from gpuprof.collectors.live.host_settings import cpu_governor, cpu_quota_cores
from gpuprof.collectors.live.nvml.library import (
    ask,
    close_library,
    find_handle,
    open_library,
    text,
    visible_handles,
)
from gpuprof.collectors.live.nvml.readings import plausible
from gpuprof.collectors.live.torch_settings import torch_settings
from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.collectors.settings import setting_variables

# Beside those of `settings.toml` the only variables that a capture ever stores: each changes speed,
# none holds a secret.
ENVIRONMENT_VARIABLES: Final = (
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_VISIBLE_DEVICES",
    "GOMP_CPU_AFFINITY",
    "HIP_VISIBLE_DEVICES",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_CROSS_NIC",
    "NCCL_CUMEM_ENABLE",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NET",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
    "ONEDNN_MAX_CPU_ISA",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_TUNABLEOP_ENABLED",
    "RANK",
    "ROCR_VISIBLE_DEVICES",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "TORCHINDUCTOR_CUDAGRAPHS",
    "TORCHINDUCTOR_FREEZING",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_COMPILE_DISABLE",
    "TORCH_CUDNN_SDPA_ENABLED",
    "TORCH_CUDNN_V8_API_DISABLED",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_HIGH_PRIORITY",
    "WORLD_SIZE",
)

T = TypeVar("T")


def collect_fingerprint(
    environment: Mapping[str, str] = os.environ, *, import_torch: bool = True
) -> Fingerprint:
    """Describe this process, its devices and libraries.

    Without `import_torch` a process that has not imported torch is left without it: its device is
    the CPU.
    """
    torch = _probe(_import_torch) if import_torch or "torch" in sys.modules else None
    facts = Fingerprint(
        driver=_probe(_driver_version),
        python=platform.python_version(),
        platform=_probe(_platform),
        cpu=_probe(cpu_name),
        cpu_cores=_probe(usable_cores),
        cpu_governor=_probe(cpu_governor),
        cpu_quota_cores=_probe(cpu_quota_cores),
        environment={
            name: environment[name]
            for name in sorted({*ENVIRONMENT_VARIABLES, *setting_variables()})
            if name in environment
        },
    )
    if torch is None:
        return msgspec.structs.replace(facts, devices=(cpu_device(),))
    overridden = environment.get("NVIDIA_TF32_OVERRIDE") == "0"
    return msgspec.structs.replace(
        facts,
        devices=_devices(torch),
        cuda=torch.version.cuda,
        hip=getattr(torch.version, "hip", None),
        torch=str(torch.__version__),
        triton=_probe(_triton_version),
        cudnn=_probe(lambda: _cudnn_version(torch)),
        nccl=_probe(lambda: ".".join(map(str, torch.cuda.nccl.version()))),
        torch_threads=_probe(lambda: torch.get_num_threads()),
        float32_matmul_precision=_probe(lambda: _float32_matmul_precision(torch)),
        allow_tf32_matmul=not overridden and _probe(lambda: _tf32(torch.backends.cuda.matmul)),
        torch_settings=torch_settings(),
        allow_tf32_cudnn=not overridden and _probe(lambda: _tf32(torch.backends.cudnn)),
    )


def accelerators(torch: Any) -> tuple[Device, ...]:
    """The GPUs that CUDA or HIP lets this process use."""
    library, _ = open_library()
    try:
        return tuple(_gpu(torch, index, library) for index in range(torch.cuda.device_count()))
    finally:
        if library is not None:
            close_library(library)


def cpu_device() -> Device:
    """The CPU as a device: its usable cores, memory and last level of cache, all of it."""
    name = _probe(cpu_name)
    return Device(
        index=0,
        kind="cpu",
        name=name or platform.machine(),
        total_memory_bytes=_probe(lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        multiprocessors=_probe(usable_cores),
        architecture=_probe(_cpu_architecture),
        l2_cache_bytes=_probe(last_level_cache_bytes),
    )


def cpu_name() -> str | None:
    """The CPU's model as Linux names it."""
    return _cpuinfo().get("model name")


def usable_cores() -> int | None:
    """Cores that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _devices(torch: Any) -> tuple[Device, ...]:
    if not _probe(torch.cuda.is_available):
        return (cpu_device(),)
    # A forked child cannot start CUDA again: its devices are unknown, not the CPU.
    return _probe(lambda: accelerators(torch)) or ()


def _probe(read: Callable[[], T]) -> T | None:
    try:
        return read()
    # Drivers, containers and torch versions fail in ways that no list of types covers, and a
    # program must not stop because one fact about its environment is not to be had.
    except Exception:
        return None


def _import_torch() -> Any:
    import torch

    return torch


def _platform() -> str:
    # As platform.platform(), which starts a process to ask for what it then does not show: the
    # program would get a SIGCHLD.
    system = os.uname()
    library = "".join(platform.libc_ver())
    return f"{system.sysname}-{system.release}-{system.machine}-with-{library}"


def _driver_version() -> str | None:
    version = ask(lambda library: text(library.nvmlSystemGetDriverVersion()))
    if version is not None:
        return version
    found = re.search(r"\d+\.\d+(\.\d+)?", Path("/proc/driver/nvidia/version").read_text())
    return found[0] if found else None


def _triton_version() -> str | None:
    # Not imported: that takes a second and may start a compiler.
    for package in ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm"):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # noqa: PERF203
            continue
    return None


def _cudnn_version(torch: Any) -> str | None:
    version = torch.backends.cudnn.version()
    if version is None or torch.version.cuda is None:
        return None
    # 8902 is 8.9.2, 91002 is 9.10.2.
    scale = 10000 if version >= 90000 else 1000
    return f"{version // scale}.{version % scale // 100}.{version % 100}"


def _float32_matmul_precision(torch: Any) -> str:
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        # Since torch 2.9 this getter raises where the program used the newer settings.
        return "high" if _tf32(torch.backends.cuda.matmul) else "highest"


def _tf32(backend: Any) -> bool:
    """Whether a CUDA backend may round float32 factors to TF32, by the setting it has."""
    newer = getattr(getattr(backend, "conv", backend), "fp32_precision", None)
    return bool(newer == "tf32" if newer is not None else backend.allow_tf32)


def _gpu(torch: Any, index: int, library: Any) -> Device:
    properties = torch.cuda.get_device_properties(index)
    hip = getattr(torch.version, "hip", None) is not None
    device = Device(
        index=index,
        kind="hip" if hip else "cuda",
        name=properties.name,
        uuid=_probe(lambda: str(properties.uuid)),
        total_memory_bytes=properties.total_memory,
        multiprocessors=properties.multi_processor_count,
        compute_capability=None if hip else f"{properties.major}.{properties.minor}",
        architecture=getattr(properties, "gcnArchName", None) if hip else None,
        l2_cache_bytes=_probe(lambda: int(properties.L2_cache_size)),
        warp_size=_probe(lambda: int(properties.warp_size)),
    )
    handle = _probe(lambda: find_handle(library, device.uuid or ""))
    if handle is None:
        handle = _probe(lambda: visible_handles(library)[index])
    if handle is None:
        return device
    return msgspec.structs.replace(
        device,
        uuid=_probe(lambda: text(library.nvmlDeviceGetUUID(handle))) or device.uuid,
        power_limit_milliwatts=_figure(
            "power_milliwatts", lambda: library.nvmlDeviceGetEnforcedPowerLimit(handle)
        ),
        maximum_sm_clock_mhz=_figure(
            "sm_clock_mhz",
            lambda: library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_SM),
        ),
        maximum_memory_clock_mhz=_figure(
            "memory_clock_mhz",
            lambda: library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_MEM),
        ),
        application_graphics_clock_mhz=_application_clock(library, handle, "GRAPHICS", "sm"),
        application_memory_clock_mhz=_application_clock(library, handle, "MEM", "memory"),
        mig=_probe(lambda: {0: False, 1: True}[library.nvmlDeviceIsMigDeviceHandle(handle)]),
    )


def _figure(column: str, read: Callable[[], Any]) -> int | None:
    """What NVML answers, where it is a number that `column` of the samples could hold."""
    value = _probe(read)
    return round(value) if plausible(value, column) else None


def _application_clock(library: Any, handle: Any, domain: str, column: str) -> int | None:
    """The application clock of a domain in MHz where it is not the default."""
    clock = _probe(lambda: getattr(library, f"NVML_CLOCK_{domain}"))
    own = _figure(
        f"{column}_clock_mhz", lambda: library.nvmlDeviceGetApplicationsClock(handle, clock)
    )
    default = _figure(
        f"{column}_clock_mhz", lambda: library.nvmlDeviceGetDefaultApplicationsClock(handle, clock)
    )
    return None if default is None or own == default else own


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu_architecture() -> str:
    """The instruction set and the extensions that decide peak rates: "x86_64 AVX512 AMX"."""
    flags = set((_cpuinfo().get("flags") or _cpuinfo().get("Features") or "").split())
    extensions = {
        "AVX2": "avx2" in flags and "avx512f" not in flags,
        "AVX512": "avx512f" in flags,
        "AMX": "amx_tile" in flags,
        "NEON": "asimd" in flags and "sve" not in flags,
        "SVE": "sve" in flags,
    }
    return " ".join([platform.machine(), *(name for name, has in extensions.items() if has)])
