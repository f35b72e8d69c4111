"""The ceilings that Nsight Compute's counters tell: peaks of the very clocks that kernels ran at.

A clock is not the same for all launches: a product at the power limit runs slower than a copy. The
ceiling of a kind of work is therefore that of the launches that did it: their counts together over
the time that their counts take at each one's peak. Without such work it is the median of all.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import msgspec
import polars as pl

from gpuprof.roofline.machine.ceilings import Ceiling, Unit, at_clock
from gpuprof.roofline.measured.counted_costs import PACKED
from gpuprof.roofline.measured.counters import (
    SM_CLOCKS,
    ExecutedWork,
    executed_work,
    sm_clock_hz,
    tensor_counter,
    values_by_launch,
)
from gpuprof.roofline.measured.levels import level_traffic
from gpuprof.roofline.measured.metric_table import metric_table
from gpuprof.roofline.measured.submetrics import peak_per_second

_PEAKS: Final = ("peak_sustained", "peak_sustained_elapsed.per_second")


@dataclass(frozen=True)
class _Peak:
    """What one launch did of a kind, and the most it could have done in a second."""

    count: int
    rate: float
    clock_hz: float | None
    counter: str


def with_counted_ceilings(
    ceilings: Sequence[Ceiling], counters: pl.DataFrame
) -> tuple[Ceiling, ...]:
    """`ceilings` and those of the counters of one rank; without any, the compute peaks of a
    datasheet at the clock that the counters saw."""
    launches = [values for _, values in values_by_launch(counters)]
    counted = counted_ceilings(launches)
    if counted:
        return (*ceilings, *counted)
    return at_counted_clocks(ceilings, [executed_work(values) for values in launches])


def counted_ceilings(launches: Sequence[Mapping[str, float]]) -> tuple[Ceiling, ...]:
    """The ceilings of `launches`, each given as metric -> value in base units.

    None at all where DRAM's peak, or that of a kind of operations that ran, is not told: the
    ceilings of one source are what percentages are taken of.
    """
    compute: dict[tuple[Unit, str], list[_Peak]] = defaultdict(list)
    memory: dict[str, list[_Peak]] = defaultdict(list)
    ran: set[tuple[Unit, str]] = set()
    for counters in launches:
        work = executed_work(counters)
        ran |= {_kind(part.unit, part.precision) for part in work.flops if part.count}
        for kind, peak in _compute_peaks(counters, work).items():
            compute[kind].append(peak)
        for level, traffic in level_traffic(counters).items():
            if traffic.peak_bytes_per_s and traffic.peak_bytes_per_s > 0:
                memory[level].append(
                    _Peak(traffic.bytes_moved, traffic.peak_bytes_per_s, None, traffic.counter)
                )
    if "DRAM" not in memory or not ran <= compute.keys():
        return ()
    return (
        *(
            msgspec.structs.replace(_ceiling("compute", peaks), unit=unit, precision=precision)
            for (unit, precision), peaks in compute.items()
        ),
        *(
            msgspec.structs.replace(_ceiling("memory", peaks), level=level)
            for level, peaks in memory.items()
        ),
    )


def at_counted_clocks(
    ceilings: Sequence[Ceiling], launches: Sequence[ExecutedWork]
) -> tuple[Ceiling, ...]:
    """`ceilings`, the datasheet's compute peaks at the SM clock of the launches that did the work.

    Nsight Compute locks that clock to the base clock unless it is told otherwise.
    """
    return tuple(at_clock(each, _clock_mhz(each, launches)) or each for each in ceilings)


def _clock_mhz(ceiling: Ceiling, launches: Sequence[ExecutedWork]) -> int | None:
    peaks = [
        _Peak(
            launch.count(ceiling.unit or "vector", ceiling.precision or "") or 0,
            launch.sm_clock_hz,
            None,
            "",
        )
        for launch in launches
        if launch.sm_clock_hz and launch.sm_clock_hz > 0
    ]
    return round(_together(peaks) / 1e6) if peaks else None


def _compute_peaks(
    counters: Mapping[str, float], work: ExecutedWork
) -> dict[tuple[Unit, str], _Peak]:
    """Peaks of the operations of one launch, by unit and precision."""
    clock = next((each for each in SM_CLOCKS if f"{each}.avg.per_second" in counters), "")
    hertz = sm_clock_hz(counters)
    found: dict[tuple[Unit, str], _Peak] = {}
    for row in metric_table().vector_peak:
        rate = peak_per_second(counters, row.counter, clock)
        if rate is not None and rate > 0:
            count = work.count("vector", row.precision) or 0
            found[_kind("vector", row.precision)] = _Peak(
                count, rate * row.operations, hertz, row.counter
            )
    for precision, counter in _dense_counters(counters).items():
        rate = peak_per_second(counters, counter, clock)
        if rate is not None and rate > 0:
            count = work.count("tensor", precision) or 0
            found[_kind("tensor", precision)] = _Peak(count, rate, hertz, counter)
    return found


def _dense_counters(counters: Mapping[str, float]) -> dict[str, str]:
    """For each precision of the tensor units the counter with the highest dense peak.

    A counter that does not tell dense operations from sparse ones has the sparse peak, except in
    fp64, which has none. One of sums in fp16 has a peak of its own, which torch does not use.
    """
    best: dict[str, tuple[float, str]] = {}
    for metric, value in counters.items():
        counter, _, submetric = metric.partition(".sum.")
        source = tensor_counter(counter) if submetric in _PEAKS else None
        if source is None or source.parts.get("dst") == "fp16":
            continue
        dense = source.parts.get("sparsity") == "off" or source.precision == "fp64"
        if dense and value > best.get(source.precision, (0.0, ""))[0]:
            best[source.precision] = (value, counter)
    return {precision: counter for precision, (_, counter) in best.items()}


def _kind(unit: Unit, precision: str) -> tuple[Unit, str]:
    return unit, PACKED if (unit, precision) == ("vector", "fp16") else precision


def _ceiling(kind: str, peaks: Sequence[_Peak]) -> Ceiling:
    rates = [peak.rate for peak in peaks if peak.count] or [peak.rate for peak in peaks]
    rate = _together(peaks)
    # In proportion to the rate, as the peak of a cycle is the same in every launch.
    clocks = [rate * peak.clock_hz / peak.rate for peak in peaks if peak.clock_hz]
    return Ceiling(
        kind="compute" if kind == "compute" else "memory",
        rate=rate,
        source="counters",
        reference=f"Nsight Compute: {peaks[0].counter}",
        clock_mhz=round(clocks[0] / 1e6) if clocks else None,
        spread=(max(rates) - min(rates)) / median(rates),
    )


def _together(peaks: Sequence[_Peak]) -> float:
    """One rate for all, by which their counts together take as long as each at its own."""
    count = sum(peak.count for peak in peaks)
    if not count:
        return median(peak.rate for peak in peaks)
    return count / sum(peak.count / peak.rate for peak in peaks)
