"""What this machine offers to a profiler, each missing thing with the way to get it.

Every function answers with `Check`s and raises nothing: a machine where something is broken is
the one that most needs the list.
"""

import importlib.metadata
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from gpuprof._version import __version__
from gpuprof.collectors import schema
from gpuprof.collectors.distribution import DISTRIBUTION, install_command, with_extra
from gpuprof.collectors.errors import reason
from gpuprof.collectors.live.collection import LiveCollection
from gpuprof.collectors.live.collector import CollectorRow, Note, Scope
from gpuprof.collectors.live.fingerprint import accelerators, cpu_device
from gpuprof.collectors.live.nvml.library import ask, device_count
from gpuprof.collectors.live.roster import roster
from gpuprof.collectors.manifest import Device
from gpuprof.collectors.tools import TOOL_PLACES, find_tool
from gpuprof.profiler.machine.calibration_cache import load_cached
from gpuprof.profiler.machine.health_checks import health_checks
from gpuprof.profiler.machine.other_owners import other_owners
from gpuprof.profiler.machine.plugin_checks import plugin_checks
from gpuprof.roofline.machine.check import Check, State
from gpuprof.roofline.machine.devices import find_spec

_REQUIRED_PACKAGES: Final = (
    "isal",
    "jinja2",
    "msgspec",
    "numpy",
    "nvidia-ml-py",
    "nvtx",
    "plotly",
    "polars",
    "rich",
)
# package: (what it is for, how to get it)
_OPTIONAL_PACKAGES: Final = {
    "triton": ("reference kernels and inductor on GPUs", "comes with a CUDA build of torch"),
    "cuda-core": ("kernels in CUDA C++", install_command(with_extra("cuda"))),
    "ncu-report": ("reading .ncu-rep files", install_command(with_extra("ncu"))),
    "distributed": ("ranks on workers of Dask", install_command(with_extra("cluster"))),
}
_TOOL_NAMES: Final = {"nsys": "Nsight Systems", "ncu": "Nsight Compute"}
_CAP_SYS_ADMIN: Final = 21
# Long enough that the averages of GPM have a time to cover.
_RECORDING_S: Final = 0.15


def all_checks() -> list[Check]:
    """Everything, in the order in which it is shown."""
    torch, torch_check = import_torch()
    devices = _devices(torch)
    return [
        *device_checks(devices, torch),
        torch_check,
        *torch_checks(torch),
        *(check for row in roster() for check in collector_checks(row)),
        *health_checks(torch),
        *(tool_check(name) for name in TOOL_PLACES),
        counter_permission(),
        *package_checks(),
        *plugin_checks(with_torch=torch is not None),
    ]


def import_torch() -> tuple[Any, Check]:
    """torch, or None where it does not import, and what was found."""
    try:
        import torch
    # A half-installed torch fails with anything from OSError to a SystemError of its libraries.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return None, Check(
            "PyTorch", "torch", "no", reason, f"{install_command('torch')} (pytorch.org)"
        )
    return torch, Check("PyTorch", "torch", "yes", str(torch.__version__))


def torch_checks(torch: Any) -> Iterator[Check]:
    """What torch was built with: CUDA, kineto, and CUPTI behind it."""
    if torch is None:
        return
    rocm = getattr(torch.version, "hip", None)
    platform = (
        f"ROCm {rocm}" if rocm else f"CUDA {torch.version.cuda}" if torch.version.cuda else ""
    )
    cuda_build = "install a CUDA build of torch: pytorch.org/get-started"
    if platform:
        yield Check("PyTorch", "GPU build", "yes", platform)
    else:
        yield Check("PyTorch", "GPU build", "no", "torch is built for the CPU only", cuda_build)
    if torch.autograd.kineto_available():
        yield Check("PyTorch", "profiler", "yes", "torch.profiler with kineto")
    else:
        yield Check("PyTorch", "profiler", "no", "torch is built without kineto", cuda_build)
        return
    if torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities():
        yield Check("PyTorch", "GPU tracing", "yes", "roctracer" if rocm else "CUPTI")
    else:
        reason = "no GPU in use" if platform else "torch is built for the CPU only"
        yield Check("PyTorch", "GPU tracing", "no", reason, "" if platform else cuda_build)


def device_checks(devices: tuple[Device, ...], torch: Any) -> Iterator[Check]:
    """Each GPU and the CPU, with the ceilings that are known for it."""
    if not devices:
        count = ask(device_count)
        finding = "no GPU that CUDA can use"
        remedy = "profiling on the CPU works; for a GPU see its driver's installation guide"
        if count:
            finding = f"NVML sees {count} GPUs, but torch cannot use one"
            remedy = "check CUDA_VISIBLE_DEVICES, the driver's age and the build of torch"
        yield Check("Devices", "GPU", "no", finding, remedy)
    for device in devices:
        size = f"{device.name}, {device.multiprocessors} multiprocessors"
        yield Check("Devices", f"GPU {device.index}", "yes", size)
        lookup = find_spec(device)
        if lookup.spec is not None:
            yield Check("Devices", "datasheet peaks", "yes", lookup.spec.source)
        else:
            remedy = "gpuprof calibrate measures ceilings here"
            yield Check("Devices", "datasheet peaks", "no", lookup.reason, remedy)
        yield _calibration_check(device, torch)
    cpu = cpu_device()
    yield Check("Devices", "CPU", "yes", f"{cpu.name}, {cpu.multiprocessors} usable cores")
    yield _calibration_check(cpu, torch)


def collector_checks(row: CollectorRow) -> Iterator[Check]:
    """Whether a live collector can record here, and which of its columns it fills."""
    try:
        found = row.find()
    except Exception as error:
        yield Check(row.subject, row.name, "no", reason(error))
        return
    state: State = "yes" if found.available else "no"
    yield Check(row.subject, row.name, state, found.finding, found.remedy)
    if found.available:
        yield from column_checks(row)


def column_checks(row: CollectorRow) -> Iterator[Check]:
    """Which of its columns a live collector fills in a short recording, device by device."""
    collection = LiveCollection(Scope(), (row,))
    collection.start()
    time.sleep(_RECORDING_S)
    tables = collection.stop_into_tables()
    notes = collection.notes(gpu_in_use=True)
    for name, columns in row.fills.items():
        for device, rows in _by_device(tables.get(name, schema.empty(name))):
            about = [note for note in notes if note.device == device]
            yield from _filled(row.subject, device, rows.select(columns), about)
    for note in notes:
        if not note.columns:
            yield Check(row.subject, row.name, "partly", note.sentence)


def _by_device(frame: pl.DataFrame) -> Iterator[tuple[int | None, pl.DataFrame]]:
    """The rows of each device; None for those of no device, and for tables that know none."""
    if "device" not in frame.columns:
        if frame.height:
            yield None, frame
        return
    for device in frame["device"].unique().sort():
        yield device, frame.filter(pl.col("device").eq_missing(device))


def _filled(
    subject: str, device: int | None, rows: pl.DataFrame, notes: Sequence[Note]
) -> Iterator[Check]:
    silent = [name for name in rows.columns if rows[name].null_count() == rows.height]
    answered = [name for name in rows.columns if name not in silent]
    of = "" if device is None else f"GPU {device} "
    state: State = "partly" if silent else "yes"
    yield Check(subject, f"{of}readings", state, ", ".join(answered) or "none")
    for name in silent:
        remedy = next((note.sentence for note in notes if name in note.columns), "")
        yield Check(subject, f"{of}{name}", "no", "does not answer", remedy)


def tool_check(name: str) -> Check:
    """Whether one of NVIDIA's command-line profilers is installed, and where."""
    path = find_tool(name)
    title = f"{_TOOL_NAMES[name]} ({name})"
    if path is None:
        remedy = f"developer.nvidia.com/nsight-{_TOOL_NAMES[name].split()[1].lower()}"
        return Check("Tools", title, "no", "not found", f"{remedy}, or the CUDA toolkit")
    version = _tool_version(path)
    if shutil.which(name) is None:
        remedy = f"add {Path(path).parent} to PATH"
        return Check("Tools", title, "partly", f"{version}{path}, not on PATH", remedy)
    return Check("Tools", title, "yes", f"{version}{path}")


def counter_permission(
    parameters: Path = Path("/proc/driver/nvidia/params"), status: Path = Path("/proc/self/status")
) -> Check:
    """Whether this process may read GPU performance counters, which Nsight Compute needs."""
    name = "counter permission"
    admin_only = _entry(parameters, "RmProfilingAdminOnly")
    if admin_only is None:
        return Check("Tools", name, "no", "no NVIDIA driver here", "")
    if admin_only == "0":
        return Check("Tools", name, "yes", "the driver allows every user")
    capabilities = int(_entry(status, "CapEff") or "0", 16)
    if capabilities >> _CAP_SYS_ADMIN & 1:
        return Check("Tools", name, "yes", "this process is an administrator (CAP_SYS_ADMIN)")
    return Check(
        "Tools",
        name,
        "no",
        "the driver allows administrators only (ERR_NVGPUCTRPERM)",
        "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run as root"
        " (in a container: --cap-add SYS_ADMIN)",
    )


def package_checks() -> Iterator[Check]:
    """Python packages: this one, the required ones in one line, one line for each optional one."""
    yield from own_checks()
    missing = [name for name in _REQUIRED_PACKAGES if package_version(name) is None]
    if missing:
        remedy = install_command(*missing)
        yield Check("Packages", "required", "no", f"missing: {', '.join(missing)}", remedy)
    else:
        found = ", ".join(f"{name} {package_version(name)}" for name in _REQUIRED_PACKAGES)
        yield Check("Packages", "required", "yes", found)
    for name, (purpose, remedy) in _OPTIONAL_PACKAGES.items():
        version = package_version(name)
        if version is None:
            yield Check("Packages", name, "no", f"for {purpose}", remedy)
        else:
            yield Check("Packages", name, "yes", version)


def own_checks() -> Iterator[Check]:
    """What this tool is installed as, and each distribution that owns its import or command too."""
    version = package_version(DISTRIBUTION)
    where = f"{DISTRIBUTION} {version}" if version else f"run from its source, {__version__}"
    yield Check("Packages", "gpuprof", "yes", where)
    for owner in other_owners(thorough=True):
        yield Check("Packages", "gpuprof", "no", owner.finding, owner.remedy)


def package_version(name: str) -> str | None:
    """The installed version of a package, without importing it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices(torch: Any) -> tuple[Device, ...]:
    try:
        return accelerators(torch) if torch is not None and torch.cuda.is_available() else ()
    # A driver too old for this torch raises RuntimeError, a broken one whatever it likes.
    except Exception:
        return ()


def _calibration_check(device: Device, torch: Any) -> Check:
    name = "measured ceilings"
    known = None
    if torch is not None:
        known = load_cached(device, str(torch.__version__), torch.get_num_threads())
    if known is None:
        return Check("Devices", name, "no", "not measured yet", "gpuprof calibrate")
    day = time.strftime("%Y-%m-%d", time.gmtime(known.measured_ns // 10**9))
    return Check("Devices", name, "yes", f"{len(known.ceilings)} ceilings, {day}")


def _tool_version(path: str) -> str:
    """The version a tool prints, with a separator; "" where it does not."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    version = re.search(r"\b\d{4}\.\d+(\.\d+)*", done.stdout)
    return f"{version[0]}, " if version else ""


def _entry(file: Path, key: str) -> str | None:
    """The value of a `key: value` line of a /proc file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == key), None)
