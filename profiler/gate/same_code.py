"""A/A: pairs of processes of the same code, for what the noise of this machine is."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.files.temporary import keep, new_temporary_folder
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.engine import GatePlan, StoredSide, run_gate
from gpuprof.profiler.gate.programs import Preparation
from gpuprof.profiler.gate.sides import SideProgram, commit_of
from gpuprof.reports.console.progress import PartProgress
from gpuprof.roofline.gate.budget import Budget
from gpuprof.roofline.gate.measurement import FIGURES
from gpuprof.roofline.gate.result import CRASHED, GateResult, SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import TIME
from gpuprof.roofline.gate.suite import BudgetRow, Rules

# Every metric there is, so that each is measured in every process; nothing fails.
_EVERY_METRIC = BudgetRow(match="*", metrics={name: Budget(level="warn") for name in FIGURES})


@contextmanager
def same_code(
    preparation: Preparation, targets: tuple[Target, ...], *, rebuild: bool
) -> Iterator[tuple[SideProgram, SideProgram]]:
    """The working tree twice; with `rebuild` two worktrees of HEAD, each set up for itself.

    Raises `CommandError` where there is no commit, or a set-up fails.
    """
    if not rebuild:
        head = preparation.head(targets)
        yield replace(head, side="A"), head
        return
    try:
        commit_of("HEAD", preparation.folder)
    except CommandError as error:
        raise CommandError("--rebuild needs a git repository with a commit", exit_code=2) from error
    with (
        preparation.base("HEAD", targets) as first,
        preparation.base("HEAD", targets) as second,
    ):
        yield first, replace(second, side="B", label=f"{second.label} again")


@contextmanager
def kept_on_failure() -> Iterator[Path]:
    """A temporary folder for captures and logs; it stays where measuring failed.

    The error names a log in it.
    """
    folder = new_temporary_folder("gate")
    keep_it = False
    try:
        yield folder
    except CommandError:
        # Where it failed before anything was measured there is nothing to keep.
        keep_it = any(folder.iterdir())
        raise
    finally:
        if keep_it:
            keep(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def measure_same_code(
    programs: tuple[SideProgram, SideProgram], pairs: int, output: Path, progress: PartProgress
) -> GateResult:
    """So many usable pairs of every target.

    Raises `CommandError` where a process fails (exit 5) or leaves no times.
    """
    base, head = programs
    rules = Rules(RuleSettings(looks=(pairs,)), budgets=(_EVERY_METRIC,))
    return _checked(run_gate(GatePlan(base=base, head=head, rules=rules, output=output), progress))


def measure_alone(
    program: SideProgram, processes: int, output: Path, progress: PartProgress
) -> GateResult:
    """So many processes of every target, at least two, against nothing.

    Raises `CommandError` as `measure_same_code`.
    """
    nothing = StoredSide(info=SideInfo(label="nothing"), processes=(), fingerprints={})
    rules = Rules(RuleSettings(looks=(processes,)), budgets=(_EVERY_METRIC,))
    return _checked(
        run_gate(GatePlan(base=nothing, head=program, rules=rules, output=output), progress)
    )


def why_nothing_is_known(result: GateResult) -> str:
    """What became of the pairs of each benchmark, and what disturbed their processes: one line."""
    pairs = (f"{j.benchmark}: {j.message}" for j in result.judgements if j.metric == TIME)
    return "; ".join((*pairs, *result.warnings))


def _checked(result: GateResult) -> GateResult:
    for process in result.processes:
        if process.failure:
            raise CommandError(f"{process.target}: {process.failure}", exit_code=CRASHED)
    for judgement in result.judgements:
        if judgement.metric == TIME and judgement.verdict == "ERROR":
            raise CommandError(f"{judgement.benchmark}: {judgement.message}")
    return result
