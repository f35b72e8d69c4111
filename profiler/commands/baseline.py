"""`gpuprof baseline`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.configuration.gate_settings import BASELINE_FOLDER
from gpuprof.profiler.gate.selection import add_selection, selection
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import BASELINE

if TYPE_CHECKING:
    from gpuprof.profiler.gate.baseline import Baseline, BaselineFolder, Blessing
    from gpuprof.reports.json_answers.of_gates import StoredBaseline
    from gpuprof.roofline.gate.rule import RuleSettings

_PROCESSES = 10


class BaselineCommand:
    """Store measurements of a program to compare later ones with.

    A baseline holds the raw samples of many processes and the environment they ran
    in. `gpuprof gate --baseline NAME` compares the working tree with it. That is
    advisory: figures of another session differ for reasons other than the code.
    """

    name = "baseline"
    summary = "store measurements to compare later ones with"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument(
            "action",
            choices=("save", "list", "pin", "bless"),
            metavar="ACTION",
            help="save (measure, or take from a gate), list, pin or bless",
        )
        parser.add_argument("name", nargs="?", metavar="NAME", help="which baseline")
        parser.add_argument(
            "--folder",
            type=Path,
            default=Path(BASELINE_FOLDER),
            metavar="FOLDER",
            help=f"where the baselines are ({BASELINE_FOLDER})",
        )
        parser.add_argument(
            "--from",
            dest="source",
            type=Path,
            metavar="GATE",
            help="save the head side of a gate's folder or gate.json",
        )
        parser.add_argument(
            "--processes",
            type=int,
            default=_PROCESSES,
            metavar="N",
            help=f"processes to measure for each target ({_PROCESSES})",
        )
        add_selection(parser)
        parser.add_argument("--reason", metavar="TEXT", help="why the level is accepted (bless)")
        parser.add_argument("-f", "--force", action="store_true", help="replace an old baseline")
        add_json(parser, BASELINE)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` (exit 2) for what does not go together."""
        from gpuprof.profiler.gate.baseline import BaselineFolder

        folder = BaselineFolder(arguments.folder)
        said = self._act(arguments, folder)
        if arguments.json:
            from gpuprof.reports.json_answers.of_gates import Baselines

            write_json(BASELINE, Baselines(str(folder.folder), stored_baselines(folder)))
        elif said:
            from gpuprof.reports.console.streams import write_line

            write_line(said)
        else:
            _list(folder)
        return 0

    def _act(self, arguments: argparse.Namespace, folder: "BaselineFolder") -> str:
        """Do what was asked and say what was done, in a sentence; "" for a list."""
        from gpuprof.profiler.gate.baseline import blessed

        action, name = arguments.action, arguments.name
        if action == "list":
            if name is not None:
                raise CommandError("list takes no name", exit_code=2)
            return ""
        if name is None:
            raise CommandError(
                f"{action} needs a name: gpuprof baseline {action} NAME", exit_code=2
            )
        if action == "save":
            return _save(arguments, folder)
        if action == "pin":
            folder.pin(name)
            return f"Cumulative budgets are now compared with {name}."
        if arguments.reason is None:
            raise CommandError("bless needs --reason TEXT", exit_code=2)
        file = folder.save(blessed(folder.load(name), arguments.reason))
        return f"Blessed {name} in {file}"


def _save(arguments: argparse.Namespace, folder: "BaselineFolder") -> str:
    """Save what was asked and say so."""
    import msgspec

    from gpuprof.profiler.gate.baseline import refuse_unusable
    from gpuprof.profiler.gate.rules import rule_settings
    from gpuprof.profiler.gate.selection import configured

    file = folder.file(arguments.name)
    blessings: tuple[Blessing, ...] = ()
    if file.exists():
        if not arguments.force:
            raise CommandError(f"{file} exists; choose another name or pass --force", exit_code=2)
        # Why earlier levels were accepted stays on record.
        blessings = folder.load(arguments.name).blessings
    folder.refuse_unwritable()
    configuration, place = configured(arguments.config)
    settings = rule_settings(configuration.gate, place)
    if arguments.source is None:
        baseline = _measured(arguments, settings)
    else:
        baseline = _taken(arguments)
    names = dict.fromkeys(process.target for process in baseline.processes)
    refuse_unusable(baseline, names, settings, exit_code=2)
    folder.save(msgspec.structs.replace(baseline, blessings=blessings))
    counts = {
        target: sum(process.target == target for process in baseline.processes) for target in names
    }
    said = ", ".join(f"{count} processes of {target}" for target, count in counts.items())
    return f"Saved {file}: {said}"


def _taken(arguments: argparse.Namespace) -> "Baseline":
    from gpuprof.profiler.gate.baseline import baseline_of
    from gpuprof.profiler.gate.results import read_result

    return baseline_of(read_result(arguments.source), arguments.name)


def _measured(arguments: argparse.Namespace, settings: "RuleSettings") -> "Baseline":
    from gpuprof.profiler.gate.baseline import baseline_of
    from gpuprof.profiler.gate.programs import Preparation
    from gpuprof.profiler.gate.same_code import kept_on_failure, measure_alone
    from gpuprof.reports.console.progress import showing_parts

    least = settings.looks[0]
    if arguments.processes < least:
        raise CommandError(
            f"--processes is {arguments.processes}; the first look of a gate needs {least}",
            exit_code=2,
        )
    configuration, _, targets = selection(arguments)
    head = Preparation(Path.cwd(), configuration.gate).head(targets)
    with kept_on_failure() as output, showing_parts("gpuprof baseline") as show:
        result = measure_alone(head, arguments.processes, output, show)
    return baseline_of(result, arguments.name, targets)


def _list(folder: "BaselineFolder") -> None:
    from gpuprof.reports.console.streams import write_line
    from gpuprof.reports.console.terminal import stdout
    from gpuprof.reports.gate.baselines import baseline_table

    rows = stored_baselines(folder)
    if rows:
        stdout().print(baseline_table(rows))
    else:
        write_line(f"There are no baselines in {folder.folder}.")


def stored_baselines(folder: "BaselineFolder") -> "tuple[StoredBaseline, ...]":
    """What is said of each baseline, the oldest first."""
    from gpuprof.reports.json_answers.of_gates import StoredBaseline

    pinned = folder.pinned()
    rows = []
    for baseline in folder.all():
        last = baseline.blessings[-1] if baseline.blessings else None
        rows.append(
            StoredBaseline(
                name=baseline.name,
                pinned=baseline.name == pinned,
                created_ns=baseline.created_ns,
                commit=baseline.info.commit,
                devices=tuple(dict.fromkeys(one.name for one in baseline.fingerprint.devices)),
                processes=len(baseline.processes),
                blessed_by=None if last is None else last.user,
                blessed_because="" if last is None else last.reason,
            )
        )
    return tuple(rows)
