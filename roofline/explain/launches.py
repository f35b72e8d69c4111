"""The kernels of some work, and how they were launched."""

import math
from typing import Any, Final

import polars as pl

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.explanation_figures import (
    ExplainedKernel,
    LaunchConfiguration,
    TimeSpread,
)
from gpuprof.roofline.kernel_names.decode import decode
from gpuprof.roofline.machine.occupancy import occupancy

_LAUNCH: Final = (
    *(f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz"),
    "registers",
    "shared_memory",
)


def kernels_of(kernels: pl.DataFrame, device: Device | None) -> tuple[ExplainedKernel, ...]:
    """The kernels of rows of a `Work`, the largest first."""
    found = []
    for (name, kind, role), rows in kernels.group_by("name", "kind", "role", maintain_order=True):
        found.append(
            ExplainedKernel(
                name=str(name),
                kind=str(kind),
                role=str(role or ""),
                decoded=decode(str(name)) if kind in ("kernel", "collective") else None,
                launches=_launches(rows, device),
                time=spread_of(rows["duration_ns"]),
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.time.total_ns, each.name)))


def _launches(rows: pl.DataFrame, device: Device | None) -> tuple[LaunchConfiguration, ...]:
    groups = rows.group_by(_LAUNCH, maintain_order=True).len()
    shapes = [_launch(row, device) for row in groups.iter_rows(named=True)]
    known = [shape for shape in shapes if shape.grid is not None]
    return tuple(sorted(known, key=lambda shape: -shape.number))


def _launch(row: dict[str, Any], device: Device | None) -> LaunchConfiguration:
    grid, block = (_dimensions(row, part) for part in ("grid", "block"))
    registers, shared = row["registers"], row["shared_memory"]
    shape = LaunchConfiguration(
        number=row["len"],
        grid=grid,
        block=block,
        registers_per_thread=registers,
        shared_bytes=shared,
    )
    if device is None or grid is None or block is None or registers is None or shared is None:
        return shape
    held = occupancy(
        device.compute_capability,
        threads_per_block=math.prod(block),
        registers_per_thread=registers,
        shared_bytes=shared,
    )
    if held is None:
        return shape
    waves = None
    if device.multiprocessors:
        waves = held.waves(math.prod(grid), device.multiprocessors)
    return LaunchConfiguration(
        number=row["len"],
        grid=grid,
        block=block,
        registers_per_thread=registers,
        shared_bytes=shared,
        occupancy=held.fraction,
        blocks_per_multiprocessor=held.blocks,
        limited_by=held.limits,
        waves=waves,
    )


def _dimensions(row: dict[str, Any], part: str) -> tuple[int, int, int] | None:
    x, y, z = (row[f"{part}_{axis}"] for axis in "xyz")
    return None if None in (x, y, z) else (x, y, z)


def spread_of(durations: pl.Series) -> TimeSpread:
    """Of the durations of at least one piece of work."""
    values = durations.sort()
    quartiles = None
    if len(values) >= 4:
        low, high = (values.quantile(share, "nearest") for share in (0.25, 0.75))
        quartiles = (round(low or 0), round(high or 0))
    return TimeSpread(
        number=len(values),
        total_ns=int(values.sum()),
        minimum_ns=int(values[0]),
        median_ns=round(values.quantile(0.5, "midpoint") or 0),
        quartiles_ns=quartiles,
        maximum_ns=int(values[-1]),
    )
