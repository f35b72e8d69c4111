"""`gpuprof gate calibrate`, `plan` and `selftest`: what the gate can see here; and `results`."""

import argparse
import gzip
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpuprof.collectors.errors import CaptureError, CommandError, problem_of
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.profiler.commands.gate_results import ResultsAction
from gpuprof.profiler.gate.selection import add_selection, selection
from gpuprof.profiler.json_output import JsonOutput, add_json, add_json_or_file, write_json
from gpuprof.reports.json_answers.schemas import GATE_CALIBRATE, GATE_PLAN, GATE_SELFTEST

if TYPE_CHECKING:
    from gpuprof.roofline.gate.result import GateResult
    from gpuprof.roofline.gate.series import MetricKey, NoiseCalibration
    from gpuprof.roofline.gate.suite import MeasuredProcess

_FEWEST_PAIRS = 2
_PAIRS = 10
_PROCESSES = 80
_GATES = 300


class Action(Protocol):
    """One word after `gpuprof gate`."""

    name: str
    summary: str

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this action's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do the work and return the exit code. Raises `GpuprofError`."""


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Add the actions to the parser of `gpuprof gate`, which stays usable without one."""
    actions = parser.add_subparsers(title="instead of a gate", metavar="[ACTION]", prog=parser.prog)
    parser.set_defaults(action=None)
    for action in ACTIONS:
        own = actions.add_parser(
            action.name,
            help=action.summary,
            description=inspect.getdoc(action),
            formatter_class=parser.formatter_class,
        )
        action.prepare_parser(own)
        own.set_defaults(action=action)


class CalibrateAction:
    """Measure how much processes of the same code differ on this machine.

    Runs pairs in which both sides are the working tree, and stores their noise.
    Later gates of the same targets in the same environment start with it, so that
    they detect smaller changes from their first pairs on. With --rebuild the sides
    are two worktrees of HEAD, each set up anew, which also measures the effect of
    building.
    """

    name = "calibrate"
    summary = "measure the noise of the targets: both sides run the same code"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Action`."""
        parser.add_argument(
            "--pairs", type=int, default=_PAIRS, metavar="N", help=f"pairs to measure ({_PAIRS})"
        )
        parser.add_argument("--rebuild", action="store_true", help="build each side separately")
        add_json(parser, GATE_CALIBRATE)
        add_selection(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Action`."""
        from gpuprof.profiler.gate.calibration_store import CalibrationStore, sessions_of
        from gpuprof.profiler.gate.same_code import why_nothing_is_known
        from gpuprof.reports.console.streams import write_line
        from gpuprof.reports.console.terminal import stdout
        from gpuprof.reports.gate.noise import calibration_table
        from gpuprof.reports.json_answers.of_gates import gate_noise

        _at_least(arguments.pairs, _FEWEST_PAIRS, "--pairs")
        result = _measure_same_code(arguments, arguments.pairs, rebuild=arguments.rebuild)
        targets = selection(arguments)[2]
        store = CalibrationStore(Path.cwd())
        added = sessions_of(result, targets, store.project, rebuilt=arguments.rebuild)
        if not added:
            why = why_nothing_is_known(result)
            raise CommandError(f"no target has two usable pairs: {why}", exit_code=4)
        is_kept = None not in [store.add(session) for session in added]
        known = [store.calibrations(session.target, session.fingerprint) for session in added]
        if arguments.json:
            kept = str(store.folder) if is_kept else None
            write_json(GATE_CALIBRATE, gate_noise(known, kept, result.warnings))
            return 0
        console = stdout()
        for calibrations in known:
            console.print(calibration_table(calibrations))
        for warning in result.warnings:
            console.print(f"! {warning}")
        if is_kept:
            write_line(f"Kept in {store.folder}")
        else:
            write_line(f"! not kept, because {store.folder} cannot be written")
        return 0


class PlanAction:
    """Say how many pairs it takes to find a change of a given size, and how long.

    Reads what `gpuprof gate calibrate` and earlier gates on the same code showed of
    the noise of each benchmark on this machine; measures nothing.
    """

    name = "plan"
    summary = "how many pairs it takes to find a change of a given size"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Action`."""
        parser.add_argument(
            "--effect", default="5%", metavar="SHARE", help="the slow-down to find (5%%)"
        )
        parser.add_argument(
            "--power", default="95%", metavar="SHARE", help="the probability of finding it (95%%)"
        )
        add_json(parser, GATE_PLAN)
        add_selection(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Action`."""
        import msgspec

        from gpuprof.profiler.gate.calibration_store import CalibrationStore, noise_of
        from gpuprof.profiler.gate.rules import rule_settings
        from gpuprof.reports.console.terminal import stdout
        from gpuprof.reports.gate.noise import plan_remarks, plan_table
        from gpuprof.reports.json_answers.of_gates import GatePlans
        from gpuprof.roofline.gate.planning import plan

        configuration, place, targets = selection(arguments)
        effect = _share(arguments.effect, "--effect")
        power = _share(arguments.power, "--power")
        settings = msgspec.structs.replace(rule_settings(configuration.gate, place), power=power)
        store = CalibrationStore(Path.cwd())
        known = []
        for target in targets:
            latest = store.latest(target)
            if latest is None:
                raise CommandError(
                    f"nothing is known of the noise of {target.name} here; "
                    "run `gpuprof gate calibrate` first",
                    exit_code=2,
                )
            known.append(noise_of(store.sessions(target, latest.fingerprint)))
        plans = plan(known, settings, effect)
        remarks = tuple(plan_remarks(plans, known, settings))
        if arguments.json:
            answer = GatePlans(effect=effect, power=power, benchmarks=plans, remarks=remarks)
            write_json(GATE_PLAN, answer)
            return 0
        console = stdout()
        console.print(plan_table(plans, settings))
        for sentence in remarks:
            console.print(sentence)
        return 0


class SelftestAction:
    """Measure how often the gate is wrong on this machine.

    Records processes of the working tree once, and pairs neighbouring ones into
    many gates. Nothing changed, so every regression is a false alarm.
    Then makes one benchmark at a time slower by --effect, and counts what is
    caught.
    """

    name = "selftest"
    summary = "measure the gate's false alarms and its power on this machine"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Action`."""
        parser.add_argument(
            "--gates", type=int, default=_GATES, metavar="N", help=f"gates to judge ({_GATES})"
        )
        parser.add_argument(
            "--effect", default="5%", metavar="SHARE", help="the slow-down to find (5%%)"
        )
        parser.add_argument(
            "--processes",
            type=int,
            default=_PROCESSES,
            metavar="N",
            help=f"processes to record for each target ({_PROCESSES})",
        )
        parser.add_argument(
            "--recording",
            type=Path,
            metavar="FILE",
            help="store the processes in FILE, or use those of an existing FILE",
        )
        add_json_or_file(parser, GATE_SELFTEST)
        parser.add_argument("-f", "--force", action="store_true", help="replace an old --json")
        add_selection(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Action`."""
        from dataclasses import replace

        from gpuprof.profiler.gate.rules import suite_rules
        from gpuprof.profiler.gate.selection import configured
        from gpuprof.reports.console.terminal import stdout
        from gpuprof.reports.gate.noise import selftest_remarks, selftest_table
        from gpuprof.roofline.gate.selftest import selftest

        _at_least(arguments.gates, 1, "--gates")
        effect = _share(arguments.effect, "--effect")
        json = JsonOutput.of(arguments)
        json.refuse_existing(force=arguments.force)
        rules = suite_rules(*configured(arguments.config))
        processes, known = _recorded(arguments, rules.settings.looks[0])
        rules = replace(rules, calibrations=known)
        try:
            found = selftest(processes, rules, gates=arguments.gates, effect=effect)
        except ValueError as error:
            raise CommandError(str(error), exit_code=2) from error
        json.write(GATE_SELFTEST, found)
        if json.alone:
            return 0
        console = stdout()
        console.print(selftest_table(found))
        for sentence in selftest_remarks(found):
            console.print(sentence)
        return 0


ACTIONS: tuple[Action, ...] = (
    CalibrateAction(),
    PlanAction(),
    SelftestAction(),
    ResultsAction(),
)


def _recorded(
    arguments: argparse.Namespace, first_look: int
) -> "tuple[tuple[MeasuredProcess, ...], dict[MetricKey, NoiseCalibration]]":
    """The processes of a self-test and what was known of their noise before them."""
    import msgspec

    from gpuprof.collectors.files.writing import refuse_existing, write_file
    from gpuprof.profiler.gate.calibration_store import CalibrationStore, sessions_of
    from gpuprof.roofline.gate.suite import MeasuredProcess

    file: Path | None = arguments.recording
    if file is not None and file.exists():
        try:
            return decode_stored(stored_content(file), tuple[MeasuredProcess, ...]), {}
        except CaptureError as error:
            raise CommandError(str(error), exit_code=2) from error
        # msgspec's errors, and invalid UTF-8.
        except ValueError as error:
            message = f"{file} is no recording of processes: {problem_of(error)}"
            raise CommandError(message, exit_code=2) from error
    if file is not None:
        refuse_existing(file, force=False, option="--recording")
    # Two processes a pair, and one pair more because drawing may leave the first process out.
    _at_least(arguments.processes, 2 * first_look + 2, "--processes")
    result = _measure_same_code(arguments, arguments.processes // 2, rebuild=False)
    if file is not None:
        content = msgspec.json.encode(result.processes)
        write_file(file, gzip.compress(content) if file.suffix == ".gz" else content)
    targets = selection(arguments)[2]
    store = CalibrationStore(Path.cwd())
    known: dict[MetricKey, NoiseCalibration] = {}
    for target in targets:
        known.update(store.calibrations(target, result.head.fingerprint))
    for session in sessions_of(result, targets, store.project, rebuilt=False):
        store.add(session)
    return result.processes, known


def _measure_same_code(arguments: argparse.Namespace, pairs: int, *, rebuild: bool) -> "GateResult":
    from gpuprof.profiler.gate.programs import Preparation
    from gpuprof.profiler.gate.same_code import kept_on_failure, measure_same_code, same_code
    from gpuprof.reports.console.progress import showing_parts

    configuration, _, targets = selection(arguments)
    preparation = Preparation(Path.cwd(), configuration.gate)
    with (
        kept_on_failure() as output,
        same_code(preparation, targets, rebuild=rebuild) as programs,
        showing_parts("gpuprof gate") as progress,
    ):
        return measure_same_code(programs, pairs, output, progress)


def _at_least(value: int, least: int, option: str) -> None:
    if value < least:
        raise CommandError(f"{option} is {value}; it is at least {least}", exit_code=2)


def _share(text: str, option: str) -> float:
    from gpuprof.profiler.gate.rules import fraction

    value = fraction(text, option)
    if not 0 < value < 1:
        raise CommandError(f"{option} is {text!r}; it is between 0 and 100%", exit_code=2)
    return value
