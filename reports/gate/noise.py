"""Tables on the noise of a machine: its calibration, a plan, a self-test of the gate."""

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from gpuprof.reports.formatting import UNKNOWN, counted, date, duration, percent, printable
from gpuprof.roofline.gate.planning import BenchmarkPlan, TargetNoise, total_seconds
from gpuprof.roofline.gate.rule import RuleSettings, smallest_failing_by_all_looks
from gpuprof.roofline.gate.selftest import Rate, SelfTest
from gpuprof.roofline.gate.series import MetricKey, NoiseCalibration


def calibration_table(calibrations: Mapping[MetricKey, NoiseCalibration]) -> Table:
    """What is known of the noise of one target's benchmarks."""
    table = _table("Benchmark", "Metric", "Pair sd", "Degrees", "Rebuild sd")
    for (benchmark, metric), known in calibrations.items():
        table.add_row(
            Text(printable(benchmark)),
            metric,
            percent(math.sqrt(known.variance)),
            str(known.degrees),
            percent(known.rebuild_sd),
        )
    return table


def plan_table(plans: Sequence[BenchmarkPlan], settings: RuleSettings) -> Table:
    """The pairs of each benchmark, and what the gate detects as it is set."""
    table = _table("Benchmark", "Pair sd", "Pairs", "Time", "Detects")
    limit = math.log1p(settings.fail_above)
    for row in plans:
        detects = smallest_failing_by_all_looks(
            settings,
            row.pair_sd,
            row.degrees,
            null=settings.null(row.rebuild_sd),
            limit=limit,
            tests=len(plans),
        )
        table.add_row(
            Text(printable(row.benchmark)),
            percent(row.pair_sd),
            UNKNOWN if row.pairs is None else str(row.pairs),
            _seconds(row.seconds),
            percent(math.expm1(detects)),
        )
    return table


def plan_remarks(
    plans: Sequence[BenchmarkPlan], targets: Sequence[TargetNoise], settings: RuleSettings
) -> Iterator[str]:
    """What the plan costs and rests on, and which benchmarks have none."""
    none = [row for row in plans if row.pairs is None]
    for row in none:
        least = math.expm1(settings.null(row.rebuild_sd))
        yield (
            f"{printable(row.benchmark)}: no number of pairs would do, or more than 2000; "
            f"nothing up to {least:.1%} is ever a regression here."
        )
    total = total_seconds(plans)
    if total is not None:
        yield f"All targets with the pairs of their noisiest benchmark: {_seconds(total)}."
    looks = ", ".join(map(str, settings.looks))
    yield (
        "Detects: what the gate finds as it is set, looking at "
        f"{looks} pairs; only suspicious benchmarks are re-measured."
    )
    for known in targets:
        devices = ", ".join(known.devices) or "no device"
        yield (
            f"{printable(known.target)}: from {counted(known.sessions, 'session')} on {devices}, "
            f"the last of {date(known.latest_ns)}."
        )


def selftest_table(found: SelfTest) -> Table:
    """False alarms and power of each benchmark, and of the suite."""
    table = _table(
        "Benchmark", "Pair sd", "Detects", "False alarms", f"Found at {found.effect:.0%}"
    )
    for row in found.benchmarks:
        table.add_row(
            Text(printable(row.benchmark)),
            percent(row.pair_sd),
            percent(row.smallest_detectable),
            _hits(row.false_alarms),
            _hits(row.found),
        )
    table.add_section()
    table.add_row("suite", "", "", _hits(found.false_alarms), _hits(found.found))
    return table


def selftest_remarks(found: SelfTest) -> Iterator[str]:
    """The rates of the suite with their intervals, and what they rest on."""
    yield f"False alarms: {_rate(found.false_alarms)} of the gates."
    yield f"Found: {_rate(found.found)} of the slow-downs by {found.effect:.1%}."
    yield f"Undecided: {_rate(found.undecided)} of the gates without a change."
    yield f"Cost: {found.cost:.2f} times the pairs of the first look, where nothing changed."
    known = "all" if found.calibrated == len(found.benchmarks) else str(found.calibrated)
    yield (
        f"From {found.processes} processes of a target, {known} benchmarks calibrated before. "
        "The intervals (95 %, exact) are those of drawing gates from these processes."
    )


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for column in columns:
        left = column in ("Benchmark", "Metric")
        table.add_column(
            column, justify="left" if left else "right", no_wrap=not left, overflow="fold"
        )
    return table


def _seconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration(seconds * 1e9)


def _hits(rate: Rate) -> str:
    return f"{rate.hits} of {rate.gates}"


def _rate(rate: Rate) -> str:
    low, high = rate.interval
    return f"{percent(rate.share)} [{percent(low)}, {percent(high)}]"
