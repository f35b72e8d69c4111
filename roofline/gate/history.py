"""How a metric of a benchmark went over time: one point a gate, and where its level changed."""

import hashlib
import math
import statistics
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from gpuprof.roofline.gate.measurement import COUNTERS, TIMED_METRICS, Measurement
from gpuprof.roofline.gate.reported_metrics import REPORTED_METRICS
from gpuprof.roofline.gate.result import GateResult
from gpuprof.roofline.gate.series import TIME, ProcessRun
from gpuprof.roofline.gate.suite import MeasuredProcess
from gpuprof.roofline.machine.environment import strict_key


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one benchmark in one process: a row of the history."""

    # Names the gate; its processes share it.
    gate: str
    measured_ns: int
    commit: str | None = None
    branch: str | None = None
    # Of the environment; what strictly differs has another.
    fingerprint: str
    device: str
    benchmark: str
    metric: str
    unit: str
    pair: int
    value: Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One gate."""

    measured_ns: int
    commit: str | None
    # Median, least and most over its processes, in the metric's unit.
    value: float
    low: float
    high: float
    processes: int


class HistorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one benchmark in one environment, the oldest point first."""

    benchmark: str
    metric: str
    unit: str
    fingerprint: str
    device: str
    points: tuple[Point, ...]

    @property
    def change(self) -> float | None:
        """The last point over the first, minus 1; None where that is no ratio."""
        first, last = self.points[0].value, self.points[-1].value
        return last / first - 1 if first > 0 else None


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the level of a series changed. Advisory: such points also come by chance."""

    # Of the first point at the new level.
    index: int
    # New mean over old, minus 1.
    change: float
    p_value: float


def values_of(
    result: GateResult, *, commit: str | None = None, branch: str | None = None
) -> tuple[Value, ...]:
    """Every metric of every usable process of the head side of a gate.

    `commit` and `branch` are of the head; a commit that the result has goes first.
    """
    fingerprint = result.head.fingerprint
    devices = ", ".join(dict.fromkeys(device.name for device in fingerprint.devices))
    gate = hashlib.sha256(msgspec.json.encode((result.created_ns, result.processes))).hexdigest()
    return tuple(
        Value(
            gate=gate[:16],
            measured_ns=result.created_ns,
            commit=result.head.commit or commit,
            branch=branch,
            fingerprint=strict_key(fingerprint),
            device=devices,
            benchmark=benchmark,
            metric=metric,
            unit=unit,
            pair=process.pair,
            value=value,
        )
        for process in result.processes
        if process.side == "B" and not process.failure and not process.contamination
        for benchmark, measured in process.measurements.items()
        for metric, unit, value in _metrics(process, measured)
    )


def _metrics(process: MeasuredProcess, measured: Measurement) -> Iterator[tuple[str, str, float]]:
    run = ProcessRun(
        side=process.side,
        pair=process.pair,
        samples=tuple(map(float, measured.samples_ns)),
        discarded=measured.discarded,
    )
    if run.kept and not run.damage:
        yield TIME.name, TIME.unit, math.exp(run.log_value)
    for name, value in measured.figures.items():
        metric = TIMED_METRICS.get(name) or REPORTED_METRICS.get(name)
        yield name, "" if metric is None else metric.unit, value
    for name, count in measured.counters.items():
        if name not in measured.figures:
            yield name, COUNTERS.get(name, ""), float(count)


def series_of(values: Iterable[Value]) -> tuple[HistorySeries, ...]:
    """The series that `values` make, by benchmark, metric and environment."""
    found: dict[tuple[str, str, str], dict[str, list[Value]]] = {}
    for value in values:
        gates = found.setdefault((value.benchmark, value.metric, value.fingerprint), {})
        gates.setdefault(value.gate, []).append(value)
    series = []
    for (benchmark, metric, fingerprint), gates in sorted(found.items()):
        points = sorted(map(_point, gates.values()), key=lambda point: point.measured_ns)
        last = next(reversed(gates.values()))[0]
        series.append(
            HistorySeries(
                benchmark=benchmark,
                metric=metric,
                unit=last.unit,
                fingerprint=fingerprint,
                device=last.device,
                points=tuple(points),
            )
        )
    return tuple(series)


def _point(values: list[Value]) -> Point:
    ordered = sorted(value.value for value in values)
    return Point(
        measured_ns=values[0].measured_ns,
        commit=values[0].commit,
        value=statistics.median(ordered),
        low=ordered[0],
        high=ordered[-1],
        processes=len(ordered),
    )
