"""Roofline points of user ranges: NVTX, record_function and gpuprof.region."""

from collections.abc import Mapping, Sequence

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analysis import Bottleneck, RooflinePoint
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.roof_time import Traffic
from gpuprof.roofline.points.classify import Circumstances, WorkKey, WorkVerdict, classify
from gpuprof.roofline.points.points import (
    OF_POINTS,
    DeviceTime,
    Identity,
    Machine,
    largest_first,
    point,
    why_no_roof,
)
from gpuprof.roofline.points.total import UNKNOWN, Total, sum_known, times_calls
from gpuprof.roofline.points.transfers import against_its_link, transfers_by
from gpuprof.roofline.points.verdicts import verdict_of_several
from gpuprof.roofline.work.op_tree import RangeMembers
from gpuprof.roofline.work.work import Work

# The precision of FLOPs that a region declared, where nothing inside tells it. No ceiling has it.
_UNSPECIFIED = "unspecified"
_DECLARED = ("counts declared by the region",)


def range_points(
    capture: Capture,
    work: Work,
    members: Sequence[RangeMembers],
    machine: Machine,
    verdicts: Mapping[WorkKey, WorkVerdict],
) -> tuple[RooflinePoint, ...]:
    """One point for each range name: the device work inside its passes in the profiled steps.

    `members` is that work (`range_members`).

    Where every pass declared FLOPs or bytes (`gpuprof.region`), those stand; otherwise the counts
    are sums over the operators inside, and the class is that of the largest loss among them. Nested
    ranges each hold the work of the inner ones.
    """
    all_ns = int(work.kernels["duration_ns"].sum())
    points = []
    of_points = work.kernels.select(OF_POINTS)
    for each in members:
        passes, kernels = capture.ranges[each.passes], of_points[each.kernels]
        time = DeviceTime(passes.height, int(kernels["duration_ns"].sum()), all_ns, work.steps)
        total = _total(passes, kernels, work)
        times = machine.times(total)
        if total.assumptions == _DECLARED:
            bottleneck = _of_declared(total, time, machine)
        else:
            bottleneck = verdict_of_several(kernels, verdicts, steps=work.steps)
        identity = Identity("range", each.name, each.domain)
        found = point(identity, time, total, times, bottleneck)
        transfer = transfers_by(kernels, (), machine.links).get(())
        points.append(against_its_link(found, transfer, steps=work.steps))
    return largest_first(points)


def _of_declared(total: Total, time: DeviceTime, machine: Machine) -> Bottleneck:
    """The class of a region by the counts that its program declared."""
    times = machine.times(total)
    known = Circumstances(
        calls=time.calls,
        device_ns=time.device_ns,
        device_kind=machine.kind,
        bytes_moved=total.bytes_moved,
        l2_bytes=machine.l2_bytes,
        clock=machine.clock,
    )
    verdict = classify(times, known, why_no_roof(total, machine))
    return verdict.bottleneck(times, calls=time.calls, device_ns=time.device_ns, steps=time.steps)


def _total(passes: pl.DataFrame, kernels: pl.DataFrame, work: Work) -> Total:
    # What crosses a link is no work of this device's own units and memory.
    kernels = kernels.filter(pl.col("transfer").is_null())
    inside = sum_known(
        UNKNOWN if signature is None else times_calls(work.signatures[signature].cost, calls)
        for signature, calls in kernels.group_by("signature", maintain_order=True)
        .agg(pl.col("owner_id").n_unique())
        .iter_rows()
    )
    flops, moved = _declared_flops(passes, inside), _declared(passes["bytes"])
    return Total(
        inside.flops if flops is None else flops,
        inside.bytes_read if moved is None else None,
        inside.bytes_written if moved is None else None,
        inside.assumptions if flops is None or moved is None else _DECLARED,
        inside.traffic if moved is None else (Traffic.of_calls(moved, 0, passes.height),),
        inside.undivided_bytes if moved is None else moved,
    )


def _declared_flops(passes: pl.DataFrame, inside: Total) -> tuple[Flops, ...] | None:
    by_unit = passes["flops_by_unit"]
    if by_unit.is_not_null().all():
        try:
            declared = [msgspec.json.decode(text, type=tuple[Flops, ...]) for text in by_unit]
        except msgspec.MsgspecError:
            # Of another version, which declares otherwise.
            return None
        return sum_known(Total(flops, 0, 0) for flops in declared).flops
    count = _declared(passes["flops"])
    return None if count is None else (Flops("matmul", _precision(inside), count),)


def _declared(column: pl.Series) -> int | None:
    return int(column.sum()) if column.is_not_null().all() else None


def _precision(inside: Total) -> str:
    matmuls = [part for part in inside.flops or () if part.kind == "matmul"]
    return max(matmuls, key=lambda part: part.count).precision if matmuls else _UNSPECIFIED
