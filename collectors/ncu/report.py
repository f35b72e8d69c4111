"""Reports of Nsight Compute (.ncu-rep), read through NVIDIA's optional package ncu-report.

Since 2026.3 ncu writes .ncu-repz: the same, compressed with zstd. The package knows them by their
names alone.
"""

import math
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from gpuprof.collectors.distribution import with_extra
from gpuprof.collectors.errors import CaptureError, MissingDependencyError
from gpuprof.collectors.ncu.profile import ATTRIBUTE_PREFIX, Dimensions, Profile, ProfiledLaunch

MAGIC: Final = b"NVR\x00"
# Of zstd (RFC 8878, section 3.1.1), so of other files too.
COMPRESSED_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def read_compressed(path: Path, file: Path) -> Profile:
    """As `read_report`, of a file that is compressed with zstd."""
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as folder:
        named = Path(folder) / "report.ncu-repz"
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

    Raises `MissingDependencyError` without ncu-report, `CaptureError` where it finds nothing: that
    package returns an empty report for a damaged file.
    """
    try:
        import ncu_report
    except ImportError as error:
        raise MissingDependencyError(
            "ncu-report", f"read {path.name}", with_extra("ncu")
        ) from error
    try:
        context = ncu_report.load_report(str(file))
        profile = Profile()
        ranges = [context.range_by_idx(index) for index in range(context.num_ranges())]
        for found in ranges:
            for index in range(found.num_actions()):
                _add(profile, found.action_by_idx(index))
    except (RuntimeError, OSError, ValueError) as error:
        raise CaptureError(path, f"ncu-report could not read it: {error}") from error
    if not ranges:
        raise CaptureError(
            path,
            "damaged or empty: the report holds no results",
            expected="a complete .ncu-rep",
            remedy="profile again, or export with `ncu --csv --page raw --import REPORT.ncu-rep`",
        )
    return profile


# ncu-report is generated code without types.
def _add(profile: Profile, action: Any) -> None:
    values: dict[str, Any] = {}
    launch = len(profile.launches)
    metrics = [action.metric_by_name(name) for name in sorted(action.metric_names())]
    for metric in metrics:
        values[metric.name()] = metric.value()
    profile.launches.append(
        ProfiledLaunch(
            name=action.name(action.NameBase_DEMANGLED),
            device=_whole(values, "launch__device_id", 2**31),
            context=_whole(values, "launch__context_id"),
            stream=_whole(values, "launch__stream_id"),
            grid=_dimensions(values, "launch__grid_dim"),
            block=_dimensions(values, "launch__block_dim"),
        )
    )
    for metric in metrics:
        name, value = metric.name(), values[metric.name()]
        if name.startswith(ATTRIBUTE_PREFIX):
            profile.add_attribute(launch, name, str(value))
        elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
            profile.add(launch, name, metric.unit(), Decimal(value))


def _whole(values: dict[str, Any], name: str, limit: int = 2**63) -> int | None:
    value = values.get(name)
    return value if isinstance(value, int) and 0 <= value < limit else None


def _dimensions(values: dict[str, Any], name: str) -> Dimensions | None:
    x, y, z = (_whole(values, f"{name}_{axis}", 2**31) for axis in "xyz")
    return None if x is None or y is None or z is None else (x, y, z)
