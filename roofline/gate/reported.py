"""Other tools' results as a suite: which runs measured the same, and the verdicts on them.

A run is what the gate's own processes are: the unit, with one value a metric. The requests or
samples within it share its server, its clocks and its choices of kernels, so they make that value
and are no repeats.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import msgspec

from gpuprof.collectors.benchmark_results.run import BenchmarkRun, ReportedBenchmark
from gpuprof.collectors.benchmark_results.table import tool
from gpuprof.roofline.gate.budget import Budget
from gpuprof.roofline.gate.judge import judge
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.reported_metrics import JUDGED, REPORTED_METRICS
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import SIDES, TIME, Metric, ProcessRun, Series, Side
from gpuprof.roofline.gate.suite import Rules, budgets_of, waived

FAILED_REQUESTS = Metric(name="failed_requests", unit="")
# What tells a benchmark from others: its name and its settings.
_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Repeat:
    """One run's word on one benchmark."""

    run: BenchmarkRun
    reported: ReportedBenchmark


@dataclass(frozen=True)
class ComparedBenchmark:
    """One benchmark with the runs of both sides that measured it, in their order."""

    name: str
    base: tuple[Repeat, ...]
    head: tuple[Repeat, ...]
    # What differs between the two sides and makes them incomparable, in words.
    differs: tuple[str, ...] = ()

    def side(self, side: Side) -> tuple[Repeat, ...]:
        """The runs of one side."""
        return self.base if side == "A" else self.head

    @property
    def pairs(self) -> int:
        """Pairs that its runs make: the i-th of one side with the i-th of the other."""
        return min(len(self.base), len(self.head))


def compared(
    base: Sequence[BenchmarkRun], head: Sequence[BenchmarkRun]
) -> tuple[ComparedBenchmark, ...]:
    """The benchmarks of two sides, each with what its runs were told by both.

    Runs with equal names and settings measured the same. A benchmark that only one setting of each
    side measured is one whose settings differ: it is incomparable, and not a new one.
    """
    swept = _swept(base, head)
    before, after = _grouped(base, swept), _grouped(head, swept)
    strict = surroundings_that_differ(base, head)
    titles = _titles((*before, *after), base[0].tool)
    changed = _changed_settings(before, after)
    found = []
    for key in dict.fromkeys((*before, *after)):
        if key in changed:
            other = changed[key]
            differs = (*_against(dict(key[1]), dict(other[1])), *strict)
            title = _titles((key,), base[0].tool)[key]
            found.append(ComparedBenchmark(title, before[key], after[other], differs))
        elif key not in changed.values():
            both = before.get(key, ()), after.get(key, ())
            found.append(ComparedBenchmark(titles[key], *both, strict if all(both) else ()))
    return tuple(found)


def _changed_settings(before: Iterable[_Key], after: Iterable[_Key]) -> dict[_Key, _Key]:
    """Of each name that one setting of each side alone has: the base's, and the head's."""
    alone: dict[str, tuple[list[_Key], list[_Key]]] = {}
    for own, other, side in ((set(before), set(after), 0), (set(after), set(before), 1)):
        for key in own - other:
            alone.setdefault(key[0], ([], []))[side].append(key)
    return {
        first[0]: second[0]
        for first, second in alone.values()
        if len(first) == 1 and len(second) == 1
    }


def _swept(*sides: Sequence[BenchmarkRun]) -> tuple[str, ...]:
    """Parameters of a server that both sides swept: each has the same several values repeatedly."""
    found = []
    for key in dict.fromkeys(key for runs in sides for run in runs for key in run.parameters):
        counts = [Counter(run.parameters.get(key, "") for run in runs) for runs in sides]
        several = len(counts[0]) > 1 and counts[0].keys() == counts[1].keys()
        if several and all(number > 1 for count in counts for number in count.values()):
            found.append(key)
    return tuple(found)


def _grouped(runs: Sequence[BenchmarkRun], swept: Sequence[str]) -> dict[_Key, tuple[Repeat, ...]]:
    found: dict[_Key, tuple[Repeat, ...]] = {}
    for run in runs:
        given = {key: run.parameters[key] for key in swept if key in run.parameters}
        for reported in run.benchmarks:
            key = (reported.name, tuple(sorted({**reported.settings, **given}.items())))
            found[key] = (*found.get(key, ()), Repeat(run, reported))
    return found


def _titles(keys: Sequence[_Key], of_tool: str) -> dict[_Key, str]:
    """A name for each benchmark: the tool's own, or the model and the settings that vary."""
    rows = tool(of_tool)
    settings = [dict(own) for _, own in keys]
    varying = [
        name
        for name in dict.fromkeys(name for own in settings for name in own)
        if name != rows.model and len({own.get(name) for own in settings}) > 1
    ]
    titles = {}
    for key, own in zip(keys, settings, strict=True):
        model = own.get(rows.model, "").rpartition("/")[2]
        said = [f"{name.rpartition('.')[2]}={own[name]}" for name in varying if name in own]
        titles[key] = key[0] or " ".join([model or rows.title, *said])
    return titles


def surroundings_that_differ(
    base: Sequence[BenchmarkRun], head: Sequence[BenchmarkRun]
) -> tuple[str, ...]:
    """What of their surroundings both sides tell, and tell otherwise."""
    found = []
    for key in dict.fromkeys(key for run in base for key in run.surroundings):
        values = [
            sorted({run.surroundings[key] for run in runs if key in run.surroundings})
            for runs in (base, head)
        ]
        if values[1] and values[0] != values[1]:
            found.append(f"{key}: {' and '.join(values[0])} against {' and '.join(values[1])}")
    return tuple(found)


def remarks_that_differ(
    base: Sequence[BenchmarkRun], head: Sequence[BenchmarkRun]
) -> tuple[str, ...]:
    """What is only said: versions and notes of which no run of one side has the other's."""
    told = [[{**run.remarks, **run.parameters} for run in runs] for runs in (base, head)]
    found = []
    for key in dict.fromkeys(key for side in told for run in side for key in run):
        values = [dict.fromkeys(run.get(key, "not told") for run in side) for side in told]
        if not values[0].keys() & values[1].keys():
            found.append(f"{key}: {', '.join(values[0])} against {', '.join(values[1])}")
    return tuple(found)


def _against(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{key}: {first.get(key, 'not set')} against {second.get(key, 'not set')}"
        for key in dict.fromkeys((*first, *second))
        if first.get(key) != second.get(key)
    )


def judge_reported(
    benchmarks: Sequence[ComparedBenchmark], rules: Rules, *, today: date
) -> tuple[Judgement, ...]:
    """The verdicts on other tools' results, by the rule of the gate's own."""
    suite = [series for benchmark in benchmarks for series in _suite(benchmark, rules)]
    timed = [_told(judgement, rules.settings) for judgement in judge(suite, rules.settings)]
    failures = [j for benchmark in benchmarks for j in _failures(benchmark)]
    return tuple(waived(judgement, rules.waivers, today) for judgement in (*timed, *failures))


def _suite(benchmark: ComparedBenchmark, rules: Rules) -> Iterator[Series]:
    budgets = budgets_of(benchmark.name, rules.budgets).metrics
    repeats = (*benchmark.base, *benchmark.head)
    reported = {name for repeat in repeats for name in repeat.reported.figures}
    for name, metric in REPORTED_METRICS.items():
        asked = name in budgets
        if asked or (name in JUDGED and name in reported):
            yield Series(
                benchmark=benchmark.name,
                metric=metric,
                runs=tuple(run for side in SIDES for run in _runs(benchmark, side, metric)),
                budget=budgets.get(name, Budget()),
                incomparable=benchmark.differs,
            )


def _runs(benchmark: ComparedBenchmark, side: Side, metric: Metric) -> Iterator[ProcessRun]:
    """One a repeat. Beyond the pairs there is nothing to compare them with."""
    most = benchmark.pairs or None
    repeats = (*benchmark.base[:most], *benchmark.head[:most])
    # Their medians are only compared with medians.
    sampled = metric == TIME and all(repeat.reported.samples_ns for repeat in repeats)
    for pair, repeat in enumerate(benchmark.side(side)[:most]):
        figure = repeat.reported.figures.get(metric.name)
        samples = repeat.reported.samples_ns if sampled else () if figure is None else (figure,)
        if samples or repeat.run.problem:
            yield ProcessRun(
                side=side,
                pair=pair,
                position="first" if side == "A" else "second",
                samples=samples,
                failure=f"{repeat.run.place}: {repeat.run.problem}" if repeat.run.problem else "",
            )


def _told(judgement: Judgement, settings: RuleSettings) -> Judgement:
    """`judgement` as final, with what more repeats would need: nobody measures them here."""
    message, wanted = judgement.message, judgement.pairs_wanted
    if judgement.reason == "too-few-pairs":
        message = (
            f"cannot judge: {judgement.pairs} repeats on each side have it, and the rule needs "
            f"{settings.looks[0]}; run the benchmark {wanted} more times on each side"
        )
    elif wanted > 0:
        message = (
            f"{message}; run the benchmark {wanted} more times on each side, and judge all "
            f"{judgement.pairs + wanted} together"
        )
    return msgspec.structs.replace(judgement, message=message, pairs_wanted=0)


def _failures(benchmark: ComparedBenchmark) -> Iterator[Judgement]:
    """Requests that failed, where any did: latencies are of those that succeeded."""
    counts = [
        [r.run.failed_requests for r in repeats if r.run.failed_requests is not None]
        for repeats in (benchmark.base, benchmark.head)
    ]
    base, head = counts
    if benchmark.differs or not base or not head or not any((*base, *head)):
        return
    said = f"{_span(base)} requests of a run failed before, {_span(head)} after"
    worse = min(head) > max(base)
    yield Judgement(
        benchmark=benchmark.name,
        metric=FAILED_REQUESTS,
        verdict="REGRESSED" if worse else "INCONCLUSIVE",
        reason="counter-worse" if worse else "counter-varies",
        message=f"{said}; other figures are of those that succeeded",
        level="error" if worse else "warn",
        pairs=benchmark.pairs,
        base=sum(base) / len(base),
        head=sum(head) / len(head),
    )


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
