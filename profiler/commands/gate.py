"""`gpuprof gate`."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.masked_arguments import masked_arguments, masked_text
from gpuprof.profiler.commands.gate_actions import Action, add_actions
from gpuprof.profiler.configuration.file import Configuration
from gpuprof.profiler.configuration.gate_settings import BASELINE_FOLDER
from gpuprof.profiler.configuration.targets import Target, target_from_command
from gpuprof.profiler.gate.no_verdict import no_verdict
from gpuprof.profiler.gate.output_options import add_outputs, outputs_of
from gpuprof.profiler.gate.selection import (
    NOTHING_TO_MEASURE,
    add_selection,
    configured,
    select,
)
from gpuprof.profiler.json_output import JsonOutput
from gpuprof.reports.json_answers.schemas import GATE, GATE_DRY_RUN, JsonSchema

if TYPE_CHECKING:
    from gpuprof.profiler.gate.baseline import Baseline
    from gpuprof.profiler.gate.checks import CheckFindings
    from gpuprof.profiler.gate.engine import StoredSide
    from gpuprof.profiler.gate.sides import SideProgram
    from gpuprof.roofline.gate.judgement import Judgement
    from gpuprof.roofline.gate.result import GateResult
    from gpuprof.roofline.gate.rule import RuleSettings
    from gpuprof.roofline.gate.suite import Rules


class GateCommand:
    """Fail when a change made the program slower.

    Runs the targets of gpuprof.toml in pairs of fresh processes, of a base commit
    and of the working tree, until it is clear which of them changed. Exits with 0
    if nothing regressed, 1 for a regression, 2 for a wrong configuration, 3 if the
    two cannot be compared, 5 if a benchmark crashed.
    """

    name = "gate"
    summary = "fail when a change made the program slower"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        base = parser.add_mutually_exclusive_group()
        base.add_argument("--base", metavar="REF", help="commit to compare the working tree with")
        base.add_argument(
            "--baseline",
            metavar="NAME",
            help="stored baseline (name or file) in place of REF",
        )
        base.add_argument("-a", metavar="COMMAND", help="base command")
        parser.add_argument("-b", metavar="COMMAND", help="head command, which may be slower")
        parser.add_argument(
            "--allow-stored",
            action="store_true",
            help="let a stored baseline fail the job (--baseline)",
        )
        add_selection(parser)
        add_outputs(parser, "where results, captures and logs go")
        parser.set_defaults(schema=_schema)
        parser.add_argument(
            "--time-limit",
            metavar="TIME",
            help="measure no longer than TIME, such as '5 min'; what is open is INCONCLUSIVE",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="check, and print what would be measured",
        )
        add_actions(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` (exit 2) before anything is measured."""
        if arguments.action is not None:
            action: Action = arguments.action
            return action.run(arguments)
        configuration, place = configured(arguments.config)
        targets = select(configuration.target, arguments.only, place)
        two_commands = arguments.a is not None or arguments.b is not None
        if two_commands and (arguments.a is None or arguments.b is None):
            raise CommandError("-a and -b go together: give both commands", exit_code=2)
        if not two_commands and arguments.base is None and arguments.baseline is None:
            raise CommandError(
                "give --base REF, such as --base main, --baseline NAME, or two commands -a and -b",
                exit_code=2,
            )
        if two_commands and arguments.baseline is not None:
            raise CommandError("--baseline and -b do not go together", exit_code=2)
        if not two_commands and not targets:
            raise CommandError(NOTHING_TO_MEASURE, exit_code=2)
        with no_verdict():
            return _gate(arguments, configuration, place, targets)


def _schema(arguments: argparse.Namespace) -> JsonSchema:
    return GATE_DRY_RUN if arguments.dry_run else GATE


def _gate(
    arguments: argparse.Namespace,
    configuration: Configuration,
    place: str,
    targets: tuple[Target, ...],
) -> int:
    import msgspec

    from gpuprof.profiler.gate.calibration_store import CalibrationStore, sessions_of
    from gpuprof.profiler.gate.checks import check_files
    from gpuprof.profiler.gate.engine import GatePlan, run_gate
    from gpuprof.profiler.gate.rules import suite_rules, time_span_s
    from gpuprof.profiler.gate.sides import SideProgram
    from gpuprof.reports.console.progress import showing_parts
    from gpuprof.roofline.gate.suite import unmatched

    rules = suite_rules(configuration, place)
    limit: str | None = arguments.time_limit
    time_limit_s = None if limit is None else time_span_s(limit, "--time-limit")
    output: Path = arguments.output
    outputs = outputs_of(arguments)
    outputs.refuse_existing(force=arguments.force)
    store = CalibrationStore(Path.cwd())
    pinned = _Pinned.find(configuration, place)
    with _programs(arguments, configuration, rules.settings, targets) as (base, head):
        plan = GatePlan(
            base=base,
            head=head,
            rules=rules,
            output=output,
            on_inconclusive=configuration.gate.on_inconclusive,
            trust_stored=arguments.allow_stored,
            calibrations=store.calibrations,
            time_limit_s=time_limit_s,
        )
        found = check_files(base, head)
        if arguments.dry_run:
            found += _dry_checks(base, head, rules, configuration.target)
            commands = [said for program in (base, head) for said in _commands(program, output)]
            _print_dry_run(commands, found, JsonOutput.of(arguments))
            return 2 if found.problems else 0
        if found.problems:
            raise CommandError(found.problems[0], exit_code=2)
        outputs.prepare()
        with showing_parts("gpuprof gate") as progress:
            result = run_gate(plan, progress)
        if isinstance(base, SideProgram) and base.commit is not None and base.commit == head.commit:
            # The same code twice: what it shows of the noise is worth keeping.
            rebuilt = bool(configuration.gate.setup)
            for session in sessions_of(result, targets, store.project, rebuilt=rebuilt):
                store.add(session)
    if pinned is not None:
        since = pinned.judgements(result, rules.settings, trusted=arguments.allow_stored)
        result = msgspec.structs.replace(result, judgements=(*result.judgements, *since))
    if arguments.only is None:
        said = unmatched(rules, (judgement.benchmark for judgement in result.judgements))
        result = msgspec.structs.replace(result, warnings=(*result.warnings, *said))
    outputs.write(result)
    return result.exit_code


@dataclass(frozen=True)
class _Pinned:
    """The pinned baseline, where a cumulative budget is compared with it."""

    baseline: "Baseline"
    limit: float

    @classmethod
    def find(cls, configuration: Configuration, place: str) -> "_Pinned | None":
        """None without a budget or a pin. Raises `CommandError` (exit 2) for a wrong budget."""
        from gpuprof.profiler.gate.baseline import BaselineFolder
        from gpuprof.profiler.gate.rules import fraction

        if configuration.gate.cumulative is None:
            return None
        limit = fraction(configuration.gate.cumulative, f"{place}: gate.cumulative")
        folder = BaselineFolder(Path(BASELINE_FOLDER))
        name = folder.pinned()
        return None if name is None else cls(folder.load(name), limit)

    def judgements(
        self, result: "GateResult", settings: "RuleSettings", *, trusted: bool
    ) -> "tuple[Judgement, ...]":
        """What has added up since the baseline."""
        from gpuprof.roofline.gate.cumulative import changes_since

        known = self.baseline
        return changes_since(
            known.name, known.info, known.processes, result, settings, self.limit, trusted=trusted
        )


@contextmanager
def _programs(
    arguments: argparse.Namespace,
    configuration: Configuration,
    settings: "RuleSettings",
    targets: tuple[Target, ...],
) -> Iterator[tuple["SideProgram | StoredSide", "SideProgram"]]:
    from gpuprof.profiler.gate.baseline import BaselineFolder, stored_side
    from gpuprof.profiler.gate.programs import Preparation
    from gpuprof.roofline.gate.result import INCOMPARABLE

    preparation = Preparation(Path.cwd(), configuration.gate)
    if arguments.base is not None:
        with preparation.base(arguments.base, targets) as base:
            yield base, preparation.head(targets)
        return
    if arguments.baseline is not None:
        folder = BaselineFolder(Path(BASELINE_FOLDER))
        baseline = folder.load(arguments.baseline, missing=INCOMPARABLE)
        stored = stored_side(baseline, targets, settings)
        yield stored, preparation.head(targets)
        return
    first, second = (
        target_from_command(shlex.split(command), "command")
        for command in (arguments.a, arguments.b)
    )
    yield (
        preparation.program("A", masked_text(arguments.a), preparation.folder, (first,)),
        preparation.program("B", masked_text(arguments.b), preparation.folder, (second,)),
    )


def _commands(program: "SideProgram | StoredSide", output: Path) -> Iterator[str]:
    from gpuprof.profiler.gate.engine import StoredSide
    from gpuprof.reports.formatting import counted

    if isinstance(program, StoredSide):
        stored = counted(len(program.processes), "process", "processes")
        yield f"{program.info.label}: stored, {stored}"
        return
    for target in program.targets:
        command = target.command(program.python, output / "CAPTURES")
        yield f"{program.label}: (cd {program.folder}; {shlex.join(masked_arguments(command))})"


def _dry_checks(
    base: "SideProgram | StoredSide",
    head: "SideProgram",
    rules: "Rules",
    configured_targets: tuple[Target, ...],
) -> "CheckFindings":
    """What only a dry run looks at: it takes seconds, or a run says it at its end."""
    from datetime import date

    from gpuprof.profiler.gate.checks import (
        check_baseline,
        check_bench,
        check_interpreter,
        check_rules,
    )
    from gpuprof.profiler.gate.engine import StoredSide

    # Budgets may be of targets that --only leaves out.
    targets = (*configured_targets, *head.targets)
    found = check_rules(rules, targets, date.today()) + check_interpreter(head)
    if isinstance(base, StoredSide):
        found += check_baseline(base, head)
    else:
        found += check_interpreter(base)
    if any(target.bench for target in head.targets):
        found += check_bench(head.targets)
    return found


def _print_dry_run(commands: Sequence[str], found: "CheckFindings", json: JsonOutput) -> None:
    from gpuprof.reports.console.streams import write_line
    from gpuprof.reports.json_answers.of_gates import GateDryRun

    json.write(
        GATE_DRY_RUN,
        GateDryRun(commands=tuple(commands), problems=found.problems, remarks=found.remarks),
    )
    if json.alone:
        return
    for command in commands:
        write_line(command)
    for problem in found.problems:
        write_line(f"! {problem}; the gate would end without a verdict")
    for remark in found.remarks:
        write_line(f"! {remark}")
