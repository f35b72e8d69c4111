"""One operator or kernel through all layers."""

from typing import Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.inheriting import inherit
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.explain.choosing import is_called
from gpuprof.roofline.explain.layers import LayerReader
from gpuprof.roofline.explanation_figures import ExplainedOperator, WorkLayers
from gpuprof.roofline.measured.counted_costs import counted_work
from gpuprof.roofline.points.points import NO_OP
from gpuprof.roofline.points.process_roofs import device_of
from gpuprof.roofline.work.attribution import attribute, parent_rows
from gpuprof.roofline.work.math_mode import math_mode
from gpuprof.roofline.work.work import Work, find_work

# Operators that an analysis explains: the largest, of which each has at least this of device time.
_MOST_EXPLAINED: Final = 5
_LEAST_SHARE: Final = 0.01


class WorkExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A row of an analysis with all that its capture holds of it."""

    point: RooflinePoint
    # Of which its figures are sums.
    profiled_steps: int
    layers: WorkLayers


def explain(capture: Capture, analysis: Analysis, point: RooflinePoint) -> WorkExplanation:
    """What `capture` holds of `point`, which is one of the operators or kernels of `analysis`."""
    capture = attribute(capture.rank(analysis.rank))
    reader = LayerReader(capture, work_of(capture), device_of(capture.processes[0]))
    return WorkExplanation(
        point=point, profiled_steps=analysis.steps.profiled, layers=reader.layers_of(point)
    )


def explained_largest(
    capture: Capture, work: Work, ops: tuple[RooflinePoint, ...], device: Device | None
) -> tuple[ExplainedOperator, ...]:
    """The layers of the largest of `ops`, which are the operators of `work`."""
    reader = LayerReader(capture, work, device)
    largest = [
        index
        for index, point in enumerate(ops)
        if point.name != NO_OP and point.device_fraction >= _LEAST_SHARE
    ][:_MOST_EXPLAINED]
    return tuple(
        ExplainedOperator(op=index, layers=reader.layers_of(ops[index])) for index in largest
    )


def work_of(capture: Capture) -> Work:
    """The device work of an attributed one-rank capture, with what hardware counters tell."""
    process = capture.processes[0]
    mode = math_mode(device_of(process), process)
    return find_work(capture, mode, counted_work(capture))


def points_under(capture: Capture, analysis: Analysis, name: str) -> tuple[RooflinePoint, ...]:
    """The operators of `analysis` that operators called `name` call, the largest first.

    A composite operator such as aten::scaled_dot_product_attention has no work of its own. Only
    whole names count.
    """
    capture = attribute(capture.rank(analysis.rank))
    names = [each for each in capture.ops["name"].unique() if is_called(each, name)]
    if not names:
        return ()
    work = work_of(capture)
    named = capture.ops["name"].is_in(names).to_numpy()
    under = inherit(named.astype(np.int8), parent_rows(capture)) > 0
    inside = capture.ops.filter(pl.Series(under))["op_id"]
    owned = work.kernels.filter(pl.col("op_id").is_in(inside.implode()))
    found = {
        (work.signatures[index].name, work.signatures[index].detail, phase)
        for index, phase in owned.select("signature", "phase").unique().drop_nulls().iter_rows()
    }
    return tuple(
        point for point in analysis.ops if (point.name, point.detail, point.phase) in found
    )
