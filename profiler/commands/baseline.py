"""`gpuprof baseline`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.configuration.gate_settings import BASELINE_FOLDER
from gpuprof.profiler.gate.selection import add_selection, selection

if TYPE_CHECKING:
    from gpuprof.profiler.gate.baseline import Baseline, BaselineFolder, Blessing
    from gpuprof.reports.gate.baselines import BaselineRow
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

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` (exit 2) for what does not go together."""
        from gpuprof.profiler.gate.baseline import BaselineFolder, blessed
        from gpuprof.reports.console.streams import write_line

        folder = BaselineFolder(arguments.folder)
        action, name = arguments.action, arguments.name
        if action == "list":
            if name is not None:
                raise CommandError("list takes no name", exit_code=2)
            _list(folder)
            return 0
        if name is None:
            raise CommandError(
                f"{action} needs a name: gpuprof baseline {action} NAME", exit_code=2
            )
        if action == "save":
            _save(arguments, folder)
        elif action == "pin":
            folder.pin(name)
            write_line(f"Cumulative budgets are now compared with {name}.")
        else:
            if arguments.reason is None:
                raise CommandError("bless needs --reason TEXT", exit_code=2)
            file = folder.save(blessed(folder.load(name), arguments.reason))
            write_line(f"Blessed {name} in {file}")
        return 0


def _save(arguments: argparse.Namespace, folder: "BaselineFolder") -> None:
    import msgspec

    from gpuprof.profiler.gate.baseline import refuse_unusable
    from gpuprof.profiler.gate.rules import rule_settings
    from gpuprof.profiler.gate.selection import configured
    from gpuprof.reports.console.streams import write_line

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
    write_line(f"Saved {file}: {said}")


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

    rows = baseline_rows(folder)
    if rows:
        stdout().print(baseline_table(rows))
    else:
        write_line(f"There are no baselines in {folder.folder}.")


def baseline_rows(folder: "BaselineFolder") -> "list[BaselineRow]":
    """Every baseline as a row of the table, the oldest first."""
    from gpuprof.reports.gate.baselines import BaselineRow

    pinned = folder.pinned()
    rows = []
    for baseline in folder.all():
        last = baseline.blessings[-1] if baseline.blessings else None
        rows.append(
            BaselineRow(
                name=baseline.name,
                pinned=baseline.name == pinned,
                created_ns=baseline.created_ns,
                commit=baseline.info.commit,
                devices=tuple(dict.fromkeys(one.name for one in baseline.fingerprint.devices)),
                processes=len(baseline.processes),
                blessed_by=None if last is None else last.user,
                reason="" if last is None else last.reason,
            )
        )
    return rows
