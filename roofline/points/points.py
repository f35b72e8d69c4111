"""Roofline points: device work grouped by kernel, by operator call, and as one step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import polars as pl

from gpuprof.collectors.link_calibration import LinkCalibration
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import Bottleneck, Level, RooflinePoint
from gpuprof.roofline.machine.ceilings import Ceiling, Roof
from gpuprof.roofline.machine.devices import find_spec
from gpuprof.roofline.machine.roof_time import RoofTime, at_peaks, roof_time
from gpuprof.roofline.phase import Phase
from gpuprof.roofline.points.call_spread import spreads_by
from gpuprof.roofline.points.classify import SmClock, WorkKey, WorkVerdict
from gpuprof.roofline.points.grouping import grouped, one_text_of
from gpuprof.roofline.points.total import UNKNOWN, Total, sum_known, times_calls
from gpuprof.roofline.points.transfers import TRANSFER_KEYS, Links, against_its_link, transfers_by
from gpuprof.roofline.points.work_readings import WorkReadings
from gpuprof.roofline.spread_figures import CallSpread
from gpuprof.roofline.work.places import NOWHERE, ProgramPlace
from gpuprof.roofline.work.work import Work

COPIES = ("memcpy", "memset")
NO_OP = "(no operator)"
# What stands beside it where that work is of graphs whose operators are unknown.
REPLAYED = "replayed CUDA graphs"
# Copies and communication without an operator tell what they move: each name is work of its own.
# What else graphs replay without one is one piece of work, or one an annotation of the program.
COPY_NAME = (
    pl.when(pl.col("signature").is_null() & pl.col("kind").is_in((*COPIES, "collective")))
    .then("name")
    .when(pl.col("signature").is_null() & pl.col("replay").is_not_null())
    .then(pl.concat_str(pl.lit(REPLAYED), pl.lit(": ") + pl.col("annotation"), ignore_nulls=True))
    .otherwise(pl.lit(""))
    .alias("copy_name")
)
# Work that agrees in these has one verdict.
KEY = ("signature", "phase", "copy_name")
COPIED = (
    pl.col("bytes").sum().alias("copied_bytes"),
    pl.col("bytes").is_not_null().all().alias("bytes_known"),
)
# What of the kernels of a `Work` points of operators and of ranges are made of.
OF_POINTS = (
    *("name", "kind", "signature", "phase", "place", "caller", "replay", "annotation"),
    *("owner_id", "duration_ns", "bytes", "transfer", *TRANSFER_KEYS, "link_bytes"),
    *("exposed_ns", "rank_wait_ns", "exposed_wait_ns", "call_wait_ns", "mergeable"),
)
BYTES_UNKNOWN = "the trace does not say how many bytes it moved"


@dataclass(frozen=True)
class Machine:
    """What the work ran on."""

    device: Device | None
    roof: Roof | None
    # The clock in the profiled steps; None where NVML did not tell.
    clock: SmClock | None = None
    # All ranks of the job are known to be devices of one host.
    one_host: bool = False
    # All that are known, of every source; those of one of them are the roof.
    ceilings: tuple[Ceiling, ...] = ()
    # Collectives between devices of this kind, as they were measured on this machine.
    collectives: LinkCalibration | None = None
    # NVML's samples of the device; None where no launches are compared with them.
    readings: WorkReadings | None = None

    @property
    def links(self) -> Links:
        """Its links to the host and to other devices."""
        measured = (
            each for each in self.ceilings if each.kind == "link" and each.source == "measured"
        )
        return Links(self.roof, self.one_host, tuple(measured), self.collectives)

    # Asked for once for each kind of work, of which a trace has thousands.
    @cached_property
    def l2_bytes(self) -> int | None:
        """What the L2 cache holds; None where neither the device nor its datasheet tells."""
        if self.device is None or self.device.kind == "cpu":
            return None
        if self.device.l2_cache_bytes is not None:
            return self.device.l2_cache_bytes
        spec = find_spec(self.device).spec
        return None if spec is None or spec.l2_cache_mib is None else spec.l2_cache_mib * 2**20

    def times(self, total: "Total") -> RoofTime:
        """The least time that `total` takes in the device itself.

        Where its work or the ceilings are not known, by what its counters say of their own peaks.
        """
        found = roof_time(total.flops, total.all_traffic, self.roof)
        if found.binding is None and total.peak_times:
            return at_peaks(total.peak_times)
        return found

    @property
    def kind(self) -> str:
        """The device kind, "cuda" where unknown."""
        return "cuda" if self.device is None else self.device.kind


@dataclass(frozen=True)
class Identity:
    """What a point is a point of; the fields are those of `RooflinePoint`."""

    level: Level
    name: str
    detail: str = ""
    op: str = ""
    op_detail: str = ""
    kind: str = ""
    phase: Phase = ""
    place: ProgramPlace = NOWHERE
    caller: str = ""


@dataclass(frozen=True)
class DeviceTime:
    """How long `calls` calls took in all, of all device time in the profiled steps."""

    calls: int
    device_ns: int
    all_ns: int
    # Profiled steps that the calls are of.
    steps: int


def op_points(
    work: Work, machine: Machine, verdicts: Mapping[WorkKey, WorkVerdict]
) -> tuple[RooflinePoint, ...]:
    """One point for each operator signature, phase and place; without one for each copy.

    `verdicts` are of the same work, or of more of it. How long the single calls took is not said.
    """
    return largest_first(point for _, point in op_points_by(work, machine, verdicts))


def keyed_op_points(
    work: Work, machine: Machine, verdicts: Mapping[WorkKey, WorkVerdict]
) -> tuple[tuple[WorkKey, RooflinePoint], ...]:
    """`op_points` with the spread of their calls, each with the key of its work."""
    spreads = spreads_by(work.kernels.with_columns(COPY_NAME), (*KEY, "place"))
    points = [
        (key[: len(KEY)], msgspec.structs.replace(found, spread=spreads.get(key)))
        for key, found in op_points_by(work, machine, verdicts)
    ]
    return tuple(sorted(points, key=lambda keyed: by_time(keyed[1])))


def op_points_by(
    work: Work,
    machine: Machine,
    verdicts: Mapping[WorkKey, WorkVerdict],
    parts: Sequence[str] = (),
) -> Iterator[tuple[tuple[Any, ...], RooflinePoint]]:
    """`op_points` of each part of the work, whose kernels agree in the columns `parts`.

    Each with what its kernels agree in: the key of its work, its place, and the values of `parts`.
    """
    keys = (*KEY, "place", *parts)
    kernels = work.kernels.with_columns(COPY_NAME)
    transfers = transfers_by(kernels, keys, machine.links)
    groups = grouped(
        kernels.select(*keys, *("owner_id", "caller", "duration_ns", "kind", "bytes")),
        keys,
        pl.col("owner_id").n_unique().alias("calls"),
        one_text_of("caller"),
        pl.len().alias("kernels"),
        pl.col("duration_ns").sum(),
        pl.col("kind").first(),
        *COPIED,
    )
    all_ns = _sum(groups["duration_ns"])
    for row in groups.iter_rows(named=True):
        if row["signature"] is None:
            name, detail, calls = NO_OP, row["copy_name"], row["kernels"]
            known = detail and not detail.startswith(REPLAYED)
            total = copied(row) if known else UNKNOWN
        else:
            signature = work.signatures[row["signature"]]
            name, detail, calls = signature.name, signature.detail, row["calls"]
            total = times_calls(signature.cost, calls)
        time = DeviceTime(calls, row["duration_ns"], all_ns, work.steps)
        times = machine.times(total)
        key = tuple(row[key] for key in keys)
        identity = Identity(
            "op",
            name,
            detail,
            phase=row["phase"],
            place=work.places.table[row["place"]],
            caller=row["caller"] or "",
        )
        bottleneck = bottleneck_of(verdicts[key[: len(KEY)]], times, time)
        found = point(identity, time, total, times, bottleneck)
        yield key, against_its_link(found, transfers.get(key), steps=work.steps)


def bottleneck_of(
    verdict: WorkVerdict, times: RoofTime, time: DeviceTime, note: str = ""
) -> Bottleneck:
    """What `verdict` says of work that took `time`; `note` says why it has no roof of its own."""
    return verdict.bottleneck(
        times, calls=time.calls, device_ns=time.device_ns, steps=time.steps, note=note
    )


def step_point(
    ops: Sequence[RooflinePoint], machine: Machine, *, steps: int, bottleneck: Bottleneck
) -> RooflinePoint | None:
    """All device work of the profiled steps as one point; None where there is none.

    Its counts are the sums of what is known, so where coverage is partial they are lower bounds.
    """
    if not ops:
        return None
    device_ns = sum(op.device_ns for op in ops)
    total = sum_known(map(_total_of, ops))
    time = DeviceTime(steps, device_ns, device_ns, steps)
    return point(Identity("step", "step"), time, total, machine.times(total), bottleneck)


def _total_of(op: RooflinePoint) -> Total:
    moved = Total(op.flops, op.bytes_read, op.bytes_written, undivided_bytes=op.undivided_bytes)
    return moved.of_calls(op.calls)


def copied(row: Mapping[str, Any]) -> Total:
    """What copies of one kind moved, by their own records."""
    if not row["bytes_known"]:
        return UNKNOWN
    read = row["copied_bytes"] if row["kind"] == "memcpy" else 0
    return Total((), read, row["copied_bytes"])


def point(
    identity: Identity,
    time: DeviceTime,
    total: Total,
    times: RoofTime,
    bottleneck: Bottleneck,
    spread: CallSpread | None = None,
) -> RooflinePoint:
    """The point of work of one kind, which takes `times` at the roof."""
    count = None if total.flops is None else sum([part.count for part in total.flops])
    moved = total.bytes_moved
    return RooflinePoint(
        level=identity.level,
        name=identity.name,
        detail=identity.detail,
        op=identity.op,
        op_detail=identity.op_detail,
        kind=identity.kind,
        phase=identity.phase,
        module=identity.place.module,
        source=identity.place.source,
        fused=identity.place.fused,
        caller=identity.caller,
        calls=time.calls,
        device_ns=time.device_ns,
        device_fraction=time.device_ns / time.all_ns if time.all_ns else 0.0,
        flops=total.flops,
        bytes_read=total.bytes_read,
        bytes_written=total.bytes_written,
        undivided_bytes=total.undivided_bytes,
        arithmetic_intensity=_ratio(count, moved),
        flops_per_s=_rate(count, time.device_ns),
        bytes_per_s=_rate(moved, time.device_ns),
        bottleneck=bottleneck,
        assumptions=total.assumptions,
        spread=spread,
        **_roof_fields(times, time.device_ns),
    )


def why_no_roof(total: Total, machine: Machine) -> str:
    """Why work of a known operator has no verdict."""
    if total.flops is None or total.bytes_moved is None:
        missing = "FLOPs" if total.flops is None else "bytes"
        return f"its {missing} are unknown: the trace does not say enough of its arguments"
    if machine.roof is None:
        return "no ceiling is known for this device: run gpuprof calibrate on it"
    return "no ceiling is known for its precision"


def _roof_fields(times: RoofTime, device_ns: int) -> dict[str, Any]:
    binding = times.binding
    if binding is None:
        return {}
    return {
        "roof_ns": round(binding.ns),
        "roof": binding.ceiling.label,
        "roof_fraction": binding.ns / device_ns if device_ns > 0 else None,
    }


def _ratio(numerator: int | None, denominator: int | None) -> float | None:
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _rate(count: int | None, device_ns: int) -> float | None:
    return None if count is None or device_ns <= 0 else count / device_ns * 1e9


def largest_first(points: Iterable[RooflinePoint]) -> tuple[RooflinePoint, ...]:
    """`points` by device time, in an order that does not depend on the input's."""
    return tuple(sorted(points, key=by_time))


def by_time(point: RooflinePoint) -> tuple[int, str, str, str]:
    """What points are sorted by: the longest first, in an order that does not depend on others."""
    return -point.device_ns, point.name, point.detail, point.module


def _sum(column: pl.Series) -> int:
    return int(column.sum())
