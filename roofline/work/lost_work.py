"""Launches of the profiled steps whose device work was not recorded, and the operators they hit."""

from dataclasses import dataclass

import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, enclosing
from gpuprof.collectors.capture import Capture, once_a_capture
from gpuprof.collectors.joining.lost_launches import (
    device_launches,
    lost_count,
    still_queued,
    unnamed,
)
from gpuprof.roofline.work.attribution import parent_rows, steps_at
from gpuprof.roofline.work.owners import owners_of


@dataclass(frozen=True)
class StepLaunches:
    """The launches in the profiled steps of one rank, all launches where there are no steps."""

    count: int
    lost_count: int
    # op_id of each operator that owns a launch which no device work names: its device time says
    # too little.
    incomplete_owners: pl.Series


@once_a_capture
def launches_of_steps(capture: Capture) -> StepLaunches:
    """The launches of a one-rank capture, and what was lost of their device work.

    Without steps the figures are of the time that was recorded, and what was still queued at its
    end is not lost.
    """
    launches = device_launches(capture.launches)
    with_steps = (capture.steps["phase"] == "profiled").any()
    if with_steps:
        launches = launches.filter(steps_at(capture, launches["start_ns"]).is_not_null())
    missing = unnamed(launches, capture.kernels)
    queued = 0 if with_steps else still_queued(missing, launches).height
    lost = max(0, lost_count(missing, capture.kernels) - queued)
    ops = capture.ops
    rows = enclosing(ops, missing, "start_ns", parent_rows(capture))
    op_ids = ops["op_id"].gather(rows[rows != NONE])
    return StepLaunches(launches.height, lost, owners_of(op_ids, capture).drop_nulls())
