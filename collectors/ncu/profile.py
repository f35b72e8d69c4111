"""What was read from Nsight Compute, gathered launch by launch and turned into a Capture.

ncu serialises kernels and times each alone, on no common clock. The kernels table lays the measured
durations end to end from 0 in launch order, so durations are right and gaps mean nothing.
"""

import math
from array import array
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Final

import polars as pl

from gpuprof._version import __version__
from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.joining.launch_keys import launch_keys
from gpuprof.collectors.manifest import Device, Fingerprint, Manifest, ProcessInfo
from gpuprof.collectors.named_kernels import with_kinds
from gpuprof.collectors.ncu.units import base_unit

CLOCK: Final = "none: durations laid end to end"
ATTRIBUTE_PREFIX: Final = "device__attribute_"

_DURATION: Final = "gpu__time_duration.sum"
_REGISTERS: Final = "launch__registers_per_thread"
_SHARED_STATIC: Final = "launch__shared_mem_per_block_static"
_SHARED_DYNAMIC: Final = "launch__shared_mem_per_block_dynamic"
# A day: longer is damage.
_LONGEST_NS: Final = 86_400 * 10**9
CONDITIONS: Final = (
    "Nsight Compute ran each kernel alone, with clocks locked to base and caches flushed unless it "
    "was told otherwise: its durations are not those of the program"
)

Dimensions = tuple[int, int, int]


@dataclass(frozen=True)
class ProfiledLaunch:
    """One profiled kernel launch. Unknown is None."""

    name: str
    process: int | None = None
    device: int | None = None
    context: int | None = None
    stream: int | None = None
    grid: Dimensions | None = None
    block: Dimensions | None = None


@dataclass
class Profile:
    """Launches in the order they were profiled, and their counters in base units."""

    launches: list[ProfiledLaunch] = field(default_factory=list)
    # Per device index, what `device__attribute_*` said.
    attributes: dict[int, dict[str, str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _metrics: dict[tuple[str, str], int] = field(default_factory=dict)
    _launch: "array[int]" = field(default_factory=lambda: array("q"))
    _metric: "array[int]" = field(default_factory=lambda: array("q"))
    _value: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, launch: int, metric: str, unit: str, value: Decimal) -> None:
        """Store one counter of the launch with this index, unless no float64 can hold it."""
        base, factor = base_unit(unit)
        number = float(value * factor)
        if not math.isfinite(number):
            return
        self._launch.append(launch)
        self._metric.append(self._metrics.setdefault((metric, base), len(self._metrics)))
        self._value.append(number)

    def add_attribute(self, launch: int, name: str, text: str) -> None:
        """Store what the report says about the device of a launch."""
        device = self.launches[launch].device or 0
        self.attributes.setdefault(device, {}).setdefault(name.removeprefix(ATTRIBUTE_PREFIX), text)

    def capture(self, path: Path) -> Capture:
        """The kernels and counters tables, one rank a process in the order of process ids."""
        if not self.launches:
            raise CaptureError(
                path,
                "no kernels profiled",
                remedy="check ncu's --kernel-name, --launch-skip and --nvtx filters, and that the "
                "program reaches its GPU work",
            )
        ids = sorted({launch.process for launch in self.launches if launch.process is not None})
        ranks = {process: rank for rank, process in enumerate(ids)}
        counters = self._counters()
        kernels = self._kernels(counters, ranks)
        keys = launch_keys(kernels, schema.empty("launches"))
        self._warn_of_times(kernels)
        processes = tuple(
            self._process(rank, process) for rank, process in enumerate(ids or [None])
        )
        return Capture(
            Manifest(
                tool_version=__version__,
                source="ncu",
                title=path.name.split(".")[0],
                created_ns=path.stat().st_mtime_ns,
                clock=CLOCK,
                ranks=tuple(process.rank for process in processes),
            ),
            processes,
            kernels=kernels,
            counters=schema.conform(
                "counters",
                counters.join(
                    keys.with_columns(pl.col("row").cast(pl.Int64)),
                    left_on="launch",
                    right_on="row",
                    maintain_order="left",
                ),
            ),
        )

    def _counters(self) -> pl.DataFrame:
        """Columns launch (its index), metric, value and unit; the first of a repeated metric."""
        names = pl.DataFrame(
            [(index, name, unit) for (name, unit), index in self._metrics.items()],
            schema={"metric_id": pl.Int64, "metric": pl.String, "unit": pl.String},
            orient="row",
        )
        rows = pl.DataFrame(
            {"launch": self._launch, "metric_id": self._metric, "value": self._value},
            schema={"launch": pl.Int64, "metric_id": pl.Int64, "value": pl.Float64},
        )
        return (
            rows.join(names, on="metric_id", maintain_order="left")
            .drop("metric_id")
            .unique(["launch", "metric"], keep="first", maintain_order=True)
        )

    def _kernels(self, counters: pl.DataFrame, ranks: dict[int, int]) -> pl.DataFrame:
        frame = pl.DataFrame(
            [
                (
                    number,
                    ranks.get(launch.process, 0) if launch.process is not None else 0,
                    launch.name,
                    "kernel",
                    launch.process,
                    launch.device,
                    launch.context,
                    launch.stream,
                    *(launch.grid or (None, None, None)),
                    *(launch.block or (None, None, None)),
                )
                for number, launch in enumerate(self.launches)
            ],
            schema={
                "launch": pl.Int64,
                **{name: schema.KERNELS[name] for name in _LAUNCH_COLUMNS},
            },
            orient="row",
        )
        for metric, column in (
            (_DURATION, "duration"),
            (_REGISTERS, "registers"),
            (_SHARED_STATIC, "static"),
            (_SHARED_DYNAMIC, "dynamic"),
        ):
            values = counters.filter(pl.col("metric") == metric).select(
                "launch", pl.col("value").round().cast(pl.Int64, strict=False).alias(column)
            )
            frame = frame.join(values, on="launch", how="left", maintain_order="left")
        frame = with_kinds(frame.with_columns(collective=pl.lit(None, pl.String)))
        timed = pl.col("duration").is_between(0, _LONGEST_NS)
        end = pl.when(timed).then("duration").otherwise(0).cum_sum()
        return schema.conform(
            "kernels",
            frame.with_columns(
                pl.when(timed).then(end - pl.col("duration")).alias("start_ns"),
                pl.when(timed).then(end).alias("end_ns"),
                pl.col("registers").cast(pl.Int32, strict=False),
                (pl.col("static") + pl.col("dynamic")).alias("shared_memory"),
            ),
        )

    def _warn_of_times(self, kernels: pl.DataFrame) -> None:
        missing = kernels["start_ns"].null_count()
        if missing:
            self.warnings.append(
                f"{missing} of {kernels.height} launches have no duration, so their times are "
                f"unknown: add {_DURATION} to ncu's --metrics"
            )

    def _process(self, rank: int, process: int | None) -> ProcessInfo:
        return ProcessInfo(
            rank=rank,
            rank_from="order",
            world_size=1 if process is None else len({launch.process for launch in self.launches}),
            process=process,
            fingerprint=Fingerprint(devices=self._devices()),
            warnings=(CONDITIONS, *self.warnings) if rank == 0 else (),
        )

    def _devices(self) -> tuple[Device, ...]:
        return tuple(
            Device(
                index=index,
                kind="cuda",
                name=said["display_name"],
                total_memory_bytes=_whole(said.get("total_memory")),
                multiprocessors=_whole(said.get("multiprocessor_count")),
                compute_capability=(
                    f"{said['compute_capability_major']}.{said['compute_capability_minor']}"
                    if {"compute_capability_major", "compute_capability_minor"} <= said.keys()
                    else None
                ),
                l2_cache_bytes=_whole(said.get("l2_cache_size")),
                warp_size=_whole(said.get("warp_size")),
                maximum_sm_clock_mhz=_kilo(said.get("max_gpu_frequency_khz")),
                maximum_memory_clock_mhz=_kilo(said.get("max_mem_frequency_khz")),
            )
            for index, said in sorted(self.attributes.items())
            if said.get("display_name")
        )


_LAUNCH_COLUMNS: Final = (
    "rank", "name", "kind", "process", "device", "context", "stream",
    "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
)  # fmt: skip


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _kilo(text: str | None) -> int | None:
    value = _whole(text)
    return None if value is None else value // 1000
