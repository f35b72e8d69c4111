"""How kernels were launched, and what that allows: occupancy and waves."""

import math
from typing import Any, Final

import polars as pl

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.explanation_figures import LaunchConfiguration
from gpuprof.roofline.machine.occupancy import occupancy

# What tells configurations apart.
LAUNCH: Final = (
    *(f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz"),
    "registers",
    "shared_memory",
)


def launches_of(rows: pl.DataFrame, device: Device | None) -> tuple[LaunchConfiguration, ...]:
    """The configurations of rows of a `Work`'s kernels, the most frequent first."""
    groups = rows.group_by(LAUNCH, maintain_order=True).len()
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
