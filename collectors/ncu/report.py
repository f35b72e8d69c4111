"""Reports of Nsight Compute (.ncu-rep), read through NVIDIA's optional package ncu-report.

Since 2026.3 ncu writes .ncu-repz: the same, compressed with zstd. The package knows them by their
names alone.
"""

import importlib.util
import math
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from gpuprof.collectors.distribution import with_extra
from gpuprof.collectors.errors import CaptureError, MissingDependencyError, problem_of
from gpuprof.collectors.files.temporary import temporary_folder
from gpuprof.collectors.ncu.profile import ATTRIBUTE_PREFIX, Dimensions, Profile, ProfiledLaunch
from gpuprof.collectors.plain_text import shortened

MAGIC: Final = b"NVR\x00"
# Of zstd (RFC 8878, section 3.1.1), so of other files too.
COMPRESSED_MAGIC: Final = b"\x28\xb5\x2f\xfd"

# A report of 6.6 MB takes 0.3 s and 0.2 GB of address space: far more than that is damage.
_LONGEST_S: Final = 60.0
_LONGEST_S_PER_BYTE: Final = 1e-6
_MOST_BYTES: Final = 4 << 30
_MOST_BYTES_PER_BYTE: Final = 32
_LONGEST_REASON: Final = 100
_PROCESS: Final = Path(__file__).with_name("report_process.py")

_Value: TypeAlias = int | float | str | None


class _Metric(msgspec.Struct, frozen=True, array_like=True):
    name: str
    unit: str
    value: _Value


class _Launch(msgspec.Struct, frozen=True, array_like=True):
    name: str
    metrics: tuple[_Metric, ...]


def read_compressed(path: Path, file: Path) -> Profile:
    """As `read_report`, of a file that is compressed with zstd."""
    with temporary_folder("ncu") as folder:
        named = folder / "report.ncu-repz"
        named.symlink_to(file.absolute())
        try:
            return read_report(path, named)
        except CaptureError as error:
            raise CaptureError(
                path,
                "compressed with zstd, and no complete report of Nsight Compute",
                expected="a .ncu-repz, as ncu writes it since 2026.3",
                remedy="unpack another file with `zstd -d`, and pass what comes out",
            ) from error


def read_report(path: Path, file: Path) -> Profile:
    """Read the plain file `file`; `path` is its name for people.

    Raises `MissingDependencyError` without ncu-report, and `CaptureError` where that package finds
    nothing or fails: of some damaged files it makes an empty report, at others it ends its process.
    """
    launches = _launches(path, file)
    if not launches:
        raise _damaged(path, "damaged or empty: the report holds no results")
    profile = Profile()
    for launch in launches:
        _add(profile, launch)
    return profile


def _launches(path: Path, file: Path) -> tuple[_Launch, ...]:
    """What the package says of `file`, in a process of its own."""
    if not _is_installed():
        raise MissingDependencyError("ncu-report", f"read {path.name}", with_extra("ncu"))
    size = file.stat().st_size
    most_bytes = _MOST_BYTES + _MOST_BYTES_PER_BYTE * size
    command = [sys.executable, "-S", str(_PROCESS), str(file), str(most_bytes), *sys.path]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_LONGEST_S + _LONGEST_S_PER_BYTE * size
        )
    except subprocess.TimeoutExpired as error:
        raise _damaged(path, "damaged: ncu-report does not come to an end with it") from error
    except OSError as error:
        raise CaptureError(path, f"python could not be started: {problem_of(error)}") from error
    if done.returncode < 0:
        ended = signal.Signals(-done.returncode).name
        raise _damaged(path, f"damaged: it ends ncu-report ({ended})")
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = shortened(said[-1], _LONGEST_REASON) if said else f"exit code {done.returncode}"
        raise _damaged(path, f"damaged: ncu-report could not read it ({why})")
    try:
        return msgspec.msgpack.decode(done.stdout, type=tuple[_Launch, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(path, f"damaged: {problem_of(error)}") from error


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("ncu_report") is not None
    # It is in sys.modules, and nothing.
    except ValueError:
        return False


def _damaged(path: Path, problem: str) -> CaptureError:
    return CaptureError(
        path,
        problem,
        expected="a complete .ncu-rep",
        remedy="profile again, or export with `ncu --csv --page raw --import REPORT.ncu-rep`",
    )


def _add(profile: Profile, launch: _Launch) -> None:
    values = {metric.name: metric.value for metric in launch.metrics}
    number = len(profile.launches)
    profile.launches.append(
        ProfiledLaunch(
            name=launch.name,
            device=_whole(values, "launch__device_id", 2**31),
            context=_whole(values, "launch__context_id"),
            stream=_whole(values, "launch__stream_id"),
            grid=_dimensions(values, "launch__grid_dim"),
            block=_dimensions(values, "launch__block_dim"),
        )
    )
    for metric in launch.metrics:
        value = metric.value
        if metric.name.startswith(ATTRIBUTE_PREFIX):
            profile.add_attribute(number, metric.name, str(value))
        elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
            profile.add(number, metric.name, metric.unit, Decimal(value))


def _whole(values: dict[str, _Value], name: str, limit: int = 2**63) -> int | None:
    value = values.get(name)
    return value if isinstance(value, int) and 0 <= value < limit else None


def _dimensions(values: dict[str, _Value], name: str) -> Dimensions | None:
    x, y, z = (_whole(values, f"{name}_{axis}", 2**31) for axis in "xyz")
    return None if x is None or y is None or z is None else (x, y, z)
