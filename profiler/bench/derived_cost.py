"""What a call costs by the cost models of the operators that it runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.manifest import Calibration, Fingerprint
from gpuprof.profiler.bench.capture import profile_calls
from gpuprof.reference_kernels.suite import Prepared
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.bench.sizes import CallCost

# Of the device time: with less of it counted the rest may cost anything.
_ALL: Final = 0.999
_NAMED: Final = 3
_NO_OPERATOR: Final = "no operator of torch was recorded in it, so what it costs is unknown"


@dataclass(frozen=True)
class BenchMachine:
    """What calls run on: the device is at `position` of the fingerprint's."""

    fingerprint: Fingerprint
    position: int
    # Of the device, where it was calibrated.
    calibration: Calibration | None


def cost_by_operators(
    prepared: Prepared, flush: Callable[[], None], machine: BenchMachine
) -> CallCost:
    """FLOPs and bytes of one call, where every operator that it runs has a model.

    And what they take at the ceilings that are known of the device.
    """
    try:
        windows, trace = profile_calls(prepared, flush, lambda: None)
    except CaptureError:
        # There is nothing in the trace.
        return CallCost(reason=_NO_OPERATOR)
    analysis = analyze(_only_within(trace, windows, machine))
    covered = analysis.coverage
    if analysis.step is None or not covered.device_ns:
        return CallCost(reason=_NO_OPERATOR)
    flops, moved = analysis.step.total_flops, analysis.step.total_bytes
    if flops is None or (covered.with_flops or 0) < _ALL:
        flops = None
    if moved is None or (covered.with_bytes or 0) < _ALL:
        moved = None
    at_roof = [one.roof_ns for one in analysis.ops]
    roof_ns = None if None in at_roof else sum(ns or 0 for ns in at_roof)
    unmodelled = ", ".join(one.name for one in covered.unmodelled[:_NAMED])
    return CallCost(
        flops=None if flops is None else round(flops / len(windows)),
        flops_from=None if flops is None else "operators",
        bytes_moved=None if moved is None else round(moved / len(windows)),
        bytes_from=None if moved is None else "operators",
        reason=f"no full cost model: {unmodelled}" if None in (flops, moved) else "",
        roof_ns=None if roof_ns is None else round(roof_ns / len(windows)),
        roof_source=None if roof_ns is None else analysis.roof_source,
    )


def _only_within(
    trace: Capture, windows: Sequence[tuple[int, int]], machine: BenchMachine
) -> Capture:
    """`trace` without what lies between the calls, each of which is a step of it."""
    starts = pl.any_horizontal(pl.col("start_ns").is_between(*window) for window in windows)
    rank = trace.manifest.ranks[0]
    steps = [
        {
            "rank": rank,
            "index": index,
            "phase": "profiled",
            "start_ns": start,
            "end_ns": end,
            "host_ns": end - start,
        }
        for index, (start, end) in enumerate(windows)
    ]
    process = msgspec.structs.replace(
        trace.processes[0],
        fingerprint=machine.fingerprint,
        device=machine.position,
        calibration=machine.calibration,
    )
    return replace(
        trace,
        processes=(process,),
        kernels=trace.kernels.filter(starts),
        ops=trace.ops.filter(starts),
        launches=trace.launches.filter(starts),
        steps=schema.conform("steps", pl.DataFrame(steps)),
    )
