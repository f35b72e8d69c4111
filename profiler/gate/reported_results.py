"""A gate on results that other tools' benchmarks left in files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

from gpuprof._version import __version__
from gpuprof.collectors.benchmark_results.formats import read_runs
from gpuprof.collectors.benchmark_results.run import BenchmarkRun
from gpuprof.collectors.benchmark_results.table import tool
from gpuprof.collectors.errors import CommandError
from gpuprof.reports.formatting import counted
from gpuprof.roofline.gate.budget import OnInconclusive
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.reported import (
    ComparedBenchmark,
    compared,
    judge_reported,
    remarks_that_differ,
)
from gpuprof.roofline.gate.reported_order import in_order, order_warnings, separated
from gpuprof.roofline.gate.result import INCOMPARABLE, GateResult, SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import SIDES
from gpuprof.roofline.gate.suite import MeasuredProcess, Rules


@dataclass(frozen=True)
class ReportedSide:
    """The files of one side, and the runs in them."""

    files: tuple[Path, ...]
    runs: tuple[BenchmarkRun, ...]

    @property
    def label(self) -> str:
        """For people: how many runs there are and where."""
        ends = dict.fromkeys((str(self.files[0]), str(self.files[-1])))
        return f"{counted(len(self.runs), 'run', 'runs')} ({' to '.join(ends)})"


def read_side(files: Sequence[Path]) -> ReportedSide:
    """The runs of one side in the order in which they were made, as far as the files tell.

    Raises `CaptureError`.
    """
    runs = [run for file in files for run in read_runs(file)]
    return ReportedSide(tuple(files), in_order(runs))


def gate_results(
    base: ReportedSide,
    head: ReportedSide,
    rules: Rules,
    *,
    only: str | None = None,
    on_inconclusive: OnInconclusive = "warn",
    trust_stored: bool = False,
) -> GateResult:
    """The verdicts on two sides' runs.

    Raises `CommandError`: exit 3 where they are of different tools, or of none of their benchmarks
    there are as many repeats as the rule needs; 2 where `only` matches none, or a file is named
    twice.
    """
    _refuse_copies(base, head)
    tools = {side: tool(side) for side in {run.tool for run in (*base.runs, *head.runs)}}
    if len(tools) > 1:
        named = " and ".join(sorted(each.title for each in tools.values()))
        raise CommandError(
            f"these are results of {named}, which define their metrics differently: compare "
            "those of one tool",
            exit_code=INCOMPARABLE,
        )
    benchmarks = compared(base.runs, head.runs)
    if only is not None:
        chosen = tuple(each for each in benchmarks if fnmatchcase(each.name, only))
        if not chosen:
            names = ", ".join(each.name for each in benchmarks)
            raise CommandError(f"--only {only!r} matches no benchmark of {names}", exit_code=2)
        benchmarks = chosen
    _refuse_too_few(benchmarks, rules.settings)
    apart = separated(base.runs, head.runs)
    return GateResult(
        tool_version=__version__,
        created_ns=time.time_ns(),
        tool=next(iter(tools.values())).title,
        base=SideInfo(label=base.label),
        head=SideInfo(label=head.label),
        settings=rules.settings,
        on_inconclusive=on_inconclusive,
        advisory=apart and not trust_stored,
        judgements=judge_reported(benchmarks, rules, today=date.today()),
        processes=tuple(process for each in benchmarks for process in _processes(each)),
        warnings=(
            *order_warnings(base.runs, head.runs),
            *_uneven(benchmarks, rules.settings),
            *remarks_that_differ(base.runs, head.runs),
        ),
    )


def _refuse_copies(base: ReportedSide, head: ReportedSide) -> None:
    seen: set[Path] = set()
    for file in (*base.files, *head.files):
        if file.absolute() in seen:
            raise CommandError(
                f"{file} is given twice; a repeat is a run of its own, and no copy", exit_code=2
            )
        seen.add(file.absolute())


def _refuse_too_few(benchmarks: Sequence[ComparedBenchmark], settings: RuleSettings) -> None:
    least = settings.looks[0]
    both = [each for each in benchmarks if each.base and each.head and not each.differs]
    if not both or any(each.pairs >= least for each in both):
        return
    most = max(both, key=lambda each: each.pairs)
    lower = f", or set pairs = [{most.pairs}] in [gate] to find large changes only"
    raise CommandError(
        f"cannot judge: {counted(len(most.base), 'repeat', 'repeats')} of the base and "
        f"{len(most.head)} of the head, and the rule needs {least} of each; run the benchmark "
        f"again, base and head in turn{lower if most.pairs > 1 else ''}",
        exit_code=INCOMPARABLE,
    )


def _uneven(benchmarks: Sequence[ComparedBenchmark], settings: RuleSettings) -> list[str]:
    """What is left out: repeats without a partner, and those beyond the last look they reach."""
    said = []
    for each in benchmarks:
        if not each.base or not each.head:
            continue
        if len(each.base) != len(each.head):
            said.append(
                f"{each.name}: {len(each.base)} repeats of the base and {len(each.head)} of the "
                f"head make {counted(each.pairs, 'pair', 'pairs')}"
            )
        reached = max((look for look in settings.looks if look <= each.pairs), default=0)
        if reached and reached < each.pairs:
            looks = ", ".join(map(str, settings.looks))
            said.append(
                f"{each.name}: of {each.pairs} pairs {reached} are judged: the rule looks after "
                f"{looks} (pairs in [gate])"
            )
    return said


def _processes(benchmark: ComparedBenchmark) -> list[MeasuredProcess]:
    """The runs as processes of the gate, with all that they told."""
    return [
        MeasuredProcess(
            target=benchmark.name,
            side=side,
            pair=pair,
            first=side == "A",
            measurements={
                benchmark.name: Measurement(
                    samples_ns=tuple(map(round, repeat.reported.samples_ns)),
                    figures=repeat.reported.figures,
                )
            },
            profiled=False,
            failure=repeat.run.problem,
            log=repeat.run.place,
        )
        for side in SIDES
        for pair, repeat in enumerate(benchmark.side(side))
    ]
