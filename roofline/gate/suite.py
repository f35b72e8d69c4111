"""From measured processes to the hypotheses of a suite, with the budgets that apply to each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import msgspec

from gpuprof.roofline.gate.budget import Budget, BudgetLevel
from gpuprof.roofline.gate.counters import (
    Counter,
    CounterBudget,
    NameSet,
    as_series,
    judge_counter,
    judge_names,
)
from gpuprof.roofline.gate.judge import judge
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.measurement import COUNTERS, FIGURES, TIMED_METRICS, Measurement
from gpuprof.roofline.gate.patterns import matches
from gpuprof.roofline.gate.reported_metrics import REPORTED_METRICS
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import (
    SIDES,
    TIME,
    Metric,
    NoiseCalibration,
    ProcessRun,
    Series,
    Side,
)

BOTTLENECK = Metric(name="bottleneck", unit="")
KERNEL_NAMES = "kernel names"
# Everything that a verdict may be on.
METRIC_NAMES = tuple(
    dict.fromkeys((*TIMED_METRICS, *REPORTED_METRICS, *COUNTERS, KERNEL_NAMES, BOTTLENECK.name))
)


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """The budgets of the benchmarks whose name matches."""

    match: str
    # By metric, of TIMED_METRICS and REPORTED_METRICS.
    metrics: dict[str, Budget] = {}
    # By counter, of COUNTERS.
    counters: dict[str, CounterBudget] = {}
    # How many kernels may be new; None allows any.
    maximum_new_kernels: int | None = None
    # What another largest loss of the step is worth; None only says it.
    class_change: BudgetLevel | None = None


class Waiver(msgspec.Struct, frozen=True, kw_only=True):
    """Lets a known regression pass until a day."""

    match: str
    reason: str
    expires: date
    # One metric or counter; None for all.
    metric: str | None = None


class MeasuredProcess(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of one side measured: a benchmark, or several of one target."""

    target: str
    side: Side
    pair: int
    first: bool
    measurements: dict[str, Measurement] = {}
    # Whether it also ran steps under the profiler: else it tells times and no kernels.
    profiled: bool = True
    # Why it gave nothing, in one line; "" where it did.
    failure: str = ""
    # Where it failed: what it wrote last, and the file that has all of it.
    last_lines: tuple[str, ...] = ()
    log: str = ""
    # Who else used the device meanwhile, in words; "" where nobody was seen.
    contamination: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Rules:
    """What holds for a suite beside the rule itself."""

    settings: RuleSettings
    budgets: tuple[BudgetRow, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    # By benchmark and metric.
    calibrations: Mapping[tuple[str, str], NoiseCalibration] = field(default_factory=dict)


def budgets_of(benchmark: str, rows: Iterable[BudgetRow]) -> BudgetRow:
    """The budgets of one benchmark: of matching rows a later one wins, name by name."""
    found = BudgetRow(match=benchmark)
    for row in rows:
        if not matches(benchmark, row.match):
            continue
        found = BudgetRow(
            match=benchmark,
            metrics={**found.metrics, **row.metrics},
            counters={**found.counters, **row.counters},
            maximum_new_kernels=(
                found.maximum_new_kernels
                if row.maximum_new_kernels is None
                else row.maximum_new_kernels
            ),
            class_change=row.class_change or found.class_change,
        )
    return found


def unmatched(rules: Rules, benchmarks: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each budget and waiver that no benchmark matches: likely a typing error."""
    names = tuple(benchmarks)
    patterns = [("budget", row.match) for row in rules.budgets]
    patterns += [("waiver", waiver.match) for waiver in rules.waivers]
    return tuple(
        f"the {kind} for {pattern!r} matches no benchmark"
        for kind, pattern in patterns
        if not any(matches(name, pattern) for name in names)
    )


def judge_suite(
    processes: Sequence[MeasuredProcess],
    rules: Rules,
    *,
    today: date,
    incomparable: Mapping[str, tuple[str, ...]] | None = None,
    give_up: bool = False,
) -> tuple[Judgement, ...]:
    """The verdicts on everything that `processes` measured, timed metrics first.

    `incomparable` says for a target what makes its two sides incomparable. `give_up`: no more
    pairs will come, so all verdicts are final.
    """
    timed: list[Series] = []
    exact: list[Judgement] = []
    for benchmark in _benchmarks(processes):
        budgets = budgets_of(benchmark.name, rules.budgets)
        differs = () if incomparable is None else incomparable.get(benchmark.target, ())
        timed += _timed_series(benchmark, budgets, rules, differs)
        if differs or benchmark.failed:
            # The series of its time says so; counts of other machines say nothing.
            continue
        for counter in _counters(benchmark, budgets):
            judgement = judge_counter(counter, rules.settings.fail_above)
            demoted = as_series(counter) if judgement.reason == "counter-varies" else None
            if demoted is None or counter.name not in budgets.counters:
                exact.append(judgement)
                continue
            limit = Budget(
                regress=counter.budget.regress or None,
                maximum=counter.budget.maximum,
                minimum=counter.budget.minimum,
                level=counter.budget.level,
            )
            timed.append(msgspec.structs.replace(demoted, budget=limit))
        exact += _names(benchmark, budgets)
        exact += _bottleneck(benchmark, budgets)
    judgements = (*judge(timed, rules.settings, give_up=give_up), *exact)
    return tuple(waived(judgement, rules.waivers, today) for judgement in judgements)


def wants_kernels(processes: Iterable[MeasuredProcess]) -> bool:
    """Whether what kernels ran varies among these processes of one target and one side.

    Where it does, each further process has to tell its own; where it does not, few stand for all.
    """
    seen: dict[str, set[tuple[object, ...]]] = {}
    for process in processes:
        for name, measured in process.measurements.items() if process.profiled else ():
            seen.setdefault(name, set()).add(
                (measured.signature, measured.bottleneck, *sorted(measured.counters.items()))
            )
    return any(len(kinds) > 1 for kinds in seen.values())


def targets_wanting_pairs(
    processes: Sequence[MeasuredProcess], judgements: Iterable[Judgement]
) -> dict[str, int]:
    """How many more pairs each target needs before its benchmarks are decided."""
    target_of = {b.name: b.target for b in _benchmarks(processes)}
    wanted: dict[str, int] = {}
    for judgement in judgements:
        if judgement.pairs_wanted > 0:
            target = target_of[judgement.benchmark]
            wanted[target] = max(wanted.get(target, 0), judgement.pairs_wanted)
    return wanted


@dataclass(frozen=True)
class _Benchmark:
    """One benchmark with what each process of its target says of it; None: nothing."""

    name: str
    target: str
    processes: tuple[tuple[MeasuredProcess, Measurement | None], ...]

    @property
    def failed(self) -> bool:
        """Whether a process of its target failed."""
        return any(process.failure for process, _ in self.processes)

    def counts(self, name: str) -> bool:
        """Whether `name` is an exact count here, such as peak memory on a GPU."""
        return any(name in m.counters for s in SIDES for m in self.side(s))

    def side(self, side: Side) -> tuple[Measurement, ...]:
        """What the profiled processes of one side measured, in the order of their pairs."""
        chosen = [
            (process.pair, measured)
            for process, measured in self.processes
            if process.side == side and process.profiled and measured is not None
        ]
        return tuple(m for _, m in sorted(chosen, key=lambda item: item[0]))


def _benchmarks(processes: Sequence[MeasuredProcess]) -> tuple[_Benchmark, ...]:
    names: dict[str, dict[str, None]] = {}
    for process in processes:
        names.setdefault(process.target, {}).update(dict.fromkeys(process.measurements))
    return tuple(
        _Benchmark(
            name,
            target,
            tuple(
                (process, process.measurements.get(name))
                for process in processes
                if process.target == target
            ),
        )
        for target, found in names.items()
        # A target that never measured anything still has a verdict: its failure.
        for name in (found or [target])
    )


def _timed_series(
    benchmark: _Benchmark, budgets: BudgetRow, rules: Rules, differs: tuple[str, ...]
) -> list[Series]:
    def series(metric: Metric, runs: Iterable[ProcessRun | None]) -> Series:
        return Series(
            benchmark=benchmark.name,
            metric=metric,
            runs=tuple(run for run in runs if run is not None),
            calibration=rules.calibrations.get((benchmark.name, metric.name)),
            budget=budgets.metrics.get(metric.name, Budget()),
            incomparable=differs,
        )

    found = [series(TIME, (_time_run(p, m) for p, m in benchmark.processes))]
    # Other metrics follow the time: each is a hypothesis more, tested where somebody asks for it.
    for name in budgets.metrics:
        if name in FIGURES and not benchmark.counts(name):
            runs = (_figure_run(p, m, name) for p, m in benchmark.processes)
            found.append(series(FIGURES[name].metric, runs))
    return found


def _time_run(process: MeasuredProcess, measured: Measurement | None) -> ProcessRun | None:
    if measured is None:
        # Without a word of its own it lacks the benchmark; the other side may have it.
        return _run(process, (), failure=process.failure) if process.failure else None
    return time_run(process, measured)


def time_run(process: MeasuredProcess, measured: Measurement) -> ProcessRun:
    """The times of one benchmark as `process` measured it; of a shared device none counts."""
    samples = tuple(map(float, measured.samples_ns))
    discarded = tuple(range(len(samples))) if process.contamination else measured.discarded
    return _run(process, samples, discarded=discarded, signature=measured.signature)


def _figure_run(
    process: MeasuredProcess, measured: Measurement | None, name: str
) -> ProcessRun | None:
    if measured is None:
        return _run(process, (), failure=process.failure) if process.failure else None
    if name not in measured.figures:
        return None
    return _run(
        process,
        (measured.figures[name],),
        discarded=(0,) if process.contamination else (),
        signature=measured.signature,
    )


def _run(
    process: MeasuredProcess,
    samples: tuple[float, ...],
    *,
    discarded: tuple[int, ...] = (),
    signature: str = "",
    failure: str = "",
) -> ProcessRun:
    return ProcessRun(
        side=process.side,
        pair=process.pair,
        position="first" if process.first else "second",
        samples=samples,
        discarded=discarded,
        signature=signature,
        failure=failure,
    )


def _counters(benchmark: _Benchmark, budgets: BudgetRow) -> list[Counter]:
    base, head = benchmark.side("A"), benchmark.side("B")
    return [
        Counter(
            benchmark=benchmark.name,
            name=name,
            unit=unit,
            base=tuple(m.counters[name] for m in base if name in m.counters),
            head=tuple(m.counters[name] for m in head if name in m.counters),
            budget=budgets.counters.get(name, CounterBudget()),
        )
        for name, unit in COUNTERS.items()
        if benchmark.counts(name) or (name in budgets.counters and name not in FIGURES)
    ]


def _names(benchmark: _Benchmark, budgets: BudgetRow) -> list[Judgement]:
    base, head = benchmark.side("A"), benchmark.side("B")
    if not any(m.kernels for m in (*base, *head)):
        return []
    return [
        judge_names(
            NameSet(
                benchmark=benchmark.name,
                name=KERNEL_NAMES,
                base=tuple(m.kernels for m in base),
                head=tuple(m.kernels for m in head),
                maximum_new=budgets.maximum_new_kernels,
                level="warn" if budgets.maximum_new_kernels is None else "error",
            )
        )
    ]


def _bottleneck(benchmark: _Benchmark, budgets: BudgetRow) -> list[Judgement]:
    """A judgement where all processes of each side agree on another largest loss."""
    base = {m.bottleneck for m in benchmark.side("A")}
    head = {m.bottleneck for m in benchmark.side("B")}
    if len(base) != 1 or len(head) != 1 or base == head or "" in base | head:
        return []
    allowed = budgets.class_change is None
    return [
        Judgement(
            benchmark=benchmark.name,
            metric=BOTTLENECK,
            verdict="PASS" if allowed else "REGRESSED",
            reason="class-changed",
            message=f"the largest loss of the step was {base.pop()} and is {head.pop()}",
            level=budgets.class_change or "warn",
        )
    ]


def waived(judgement: Judgement, waivers: Iterable[Waiver], today: date) -> Judgement:
    """`judgement`, at level warn where a waiver lets it pass `today`; its message says so."""
    if not judgement.fails:
        return judgement
    for waiver in waivers:
        named = matches(judgement.benchmark, waiver.match)
        if not named or waiver.metric not in (None, judgement.metric.name):
            continue
        if today > waiver.expires:
            note = f"its waiver expired on {waiver.expires}"
            return msgspec.structs.replace(judgement, message=f"{judgement.message}; {note}")
        note = f"waived until {waiver.expires}: {waiver.reason}"
        return msgspec.structs.replace(
            judgement, level="warn", message=f"{judgement.message}; {note}"
        )
    return judgement
