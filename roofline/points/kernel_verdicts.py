"""What the analysis says about each single piece of device work."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.query_thread import on_query_thread
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.machine.ceilings import Roof
from gpuprof.roofline.measured.counted_costs import counted_work
from gpuprof.roofline.points.kernel_points import keyed_kernel_points
from gpuprof.roofline.points.points import COPY_NAME, Machine
from gpuprof.roofline.points.transfers import on_one_host
from gpuprof.roofline.points.verdicts import work_verdicts
from gpuprof.roofline.points.work_readings import clock_of
from gpuprof.roofline.work.math_mode import math_mode
from gpuprof.roofline.work.work import Work, find_work

# Rows that agree in these share a point, and have equal counts each.
_ALIKE = (
    *("name", "kind", "signature", "phase", "role", "share", "bytes", "message_bytes"),
    "group_size",
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
)


@dataclass(frozen=True)
class KernelVerdicts:
    """`points[of_kernel[row]]` is the point of row `row` of the capture's kernels.

    `of_kernel` is null outside the profiled steps. All launches of one point have equal counts:
    those of one are the point's over its `calls`.
    """

    points: tuple[RooflinePoint, ...]
    of_kernel: pl.Series
    work: Work


@on_query_thread
def kernel_verdicts(capture: Capture, analysis: Analysis) -> KernelVerdicts:
    """The points of the kernels of an attributed one-rank capture with this analysis."""
    one_host = on_one_host(analysis.world_size, analysis.fingerprint)
    clock = clock_of(analysis.device_state)
    machine = Machine(analysis.device, _roof(analysis), clock, one_host, analysis.ceilings)
    mode = math_mode(analysis.device, capture.processes[0])
    work = find_work(capture, mode, counted_work(capture))
    verdicts = work_verdicts(work, machine)
    numbered = work.kernels.with_columns(alike=pl.struct(*_ALIKE, COPY_NAME).rank("dense"))
    keyed = keyed_kernel_points(replace(work, kernels=numbered), machine, verdicts, ["alike"])
    number_of = {key[-1]: number for number, (key, _) in enumerate(keyed)}
    of_kernel = np.full(capture.kernels.height, -1, np.int64)
    of_kernel[numbered["kernel_row"].to_numpy()] = list(
        map(number_of.__getitem__, numbered["alike"])
    )
    points = tuple(point for _, point in keyed)
    return KernelVerdicts(points, pl.Series("point", of_kernel).replace(-1, None), work)


def _roof(analysis: Analysis) -> Roof | None:
    source = analysis.roof_source
    if source is None:
        return None
    return Roof(tuple(each for each in analysis.ceilings if each.source == source), source)
