"""`gpuprof history`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import FILES, HISTORY, HISTORY_ADD, JsonSchema

if TYPE_CHECKING:
    from gpuprof.roofline.gate.history import ChangePoint, HistorySeries

    # Those of each series.
    ChangePoints = Sequence[Sequence[ChangePoint]]

_FILE = "gpuprof-history.sqlite"
_METRIC = "time"


class HistoryCommand:
    """Store what gates measured over time, and show where a level changed.

    One SQLite file, with one row for each process and metric of a gate's head side.
    It shows drift, and changes too small for a gate. All of it is advisory, because
    sessions differ for reasons other than the code.
    Change points are found by Apache Otava where its command is installed.
    """

    name = "history"
    summary = "store what gates measured over time"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument(
            "action",
            choices=("add", "show", "export", "plot"),
            metavar="ACTION",
            help="add GATE..., show, export FILE.parquet, or plot FILE.html",
        )
        parser.add_argument(
            "paths",
            nargs="*",
            type=Path,
            metavar="PATH",
            help="gates to add (folder or gate.json), or the file to write",
        )
        parser.add_argument(
            "--db", type=Path, default=Path(_FILE), metavar="FILE", help=f"the history ({_FILE})"
        )
        parser.add_argument(
            "--branch", metavar="NAME", help="add: the branch (git's); else: only this one"
        )
        parser.add_argument(
            "--commit", metavar="ID", help="add: the commit, where the gate's result has none"
        )
        parser.add_argument(
            "--benchmark", metavar="PATTERN", help="show, plot: benchmarks whose name matches"
        )
        parser.add_argument(
            "--metric", default=_METRIC, metavar="NAME", help=f"show, plot: which one ({_METRIC})"
        )
        parser.add_argument("-f", "--force", action="store_true", help="replace an old file")
        add_json(parser, _schema)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` (exit 2) for what does not go together."""
        paths = arguments.paths
        action = arguments.action
        if action == "add":
            if not paths:
                raise CommandError(
                    "add needs a gate: gpuprof history add gpuprof-gate", exit_code=2
                )
            _add(arguments)
        elif action == "show":
            if paths:
                raise CommandError(f"show takes no path, but got {paths[0]}", exit_code=2)
            _show(arguments)
        else:
            suffix = {"export": ".parquet", "plot": ".html"}[action]
            if len(paths) != 1 or paths[0].suffix != suffix:
                raise CommandError(f"{action} needs one file *{suffix} to write", exit_code=2)
            (_export if action == "export" else _plot)(arguments, paths[0])
        return 0


def _schema(arguments: argparse.Namespace) -> JsonSchema:
    return {"add": HISTORY_ADD, "show": HISTORY}.get(arguments.action, FILES)


def _add(arguments: argparse.Namespace) -> None:
    from gpuprof.profiler.gate.history import History
    from gpuprof.profiler.gate.results import read_result
    from gpuprof.profiler.gate.sides import branch_of, commit_as_it_stands
    from gpuprof.reports.console.streams import write_line
    from gpuprof.reports.json_answers.of_gates import HistoryAddition, HistoryAdditions
    from gpuprof.roofline.gate.history import values_of

    # All are read before any is added.
    results = [read_result(path) for path in arguments.paths]
    here = Path.cwd()
    branch = arguments.branch or branch_of(here)
    commit = arguments.commit or commit_as_it_stands(here)
    history = History(arguments.db)
    additions = []
    for path, result in zip(arguments.paths, results, strict=True):
        values = values_of(result, commit=commit, branch=branch)
        added = history.add(values)
        additions.append(HistoryAddition(str(path), added, len(values) - added))
    if arguments.json:
        write_json(HISTORY_ADD, HistoryAdditions(tuple(additions)))
        return
    for one in additions:
        already = f", {one.known} were there already" if one.known else ""
        write_line(f"{one.gate}: {one.added} rows added{already}")


def _series(arguments: argparse.Namespace) -> "tuple[HistorySeries, ...]":
    from fnmatch import fnmatchcase

    from gpuprof.profiler.gate.history import History
    from gpuprof.roofline.gate.history import series_of

    history = History(arguments.db)
    pattern = arguments.benchmark or "*"
    series = tuple(
        one
        for one in series_of(history.values(metric=arguments.metric, branch=arguments.branch))
        if one.benchmark == pattern or fnmatchcase(one.benchmark, pattern)
    )
    if not series:
        known = dict.fromkeys(value.metric for value in history.values())
        raise CommandError(
            f"{arguments.db} has nothing of that; its metrics are {', '.join(known) or 'none'}",
            exit_code=2,
        )
    return series


def _show(arguments: argparse.Namespace) -> None:
    from gpuprof.profiler.gate.change_points import change_points_or_remark
    from gpuprof.reports.console.terminal import stdout
    from gpuprof.reports.history.table import change_sentences, history_table
    from gpuprof.reports.json_answers.of_gates import history_levels

    series = _series(arguments)
    changes, remark = change_points_or_remark(series)
    if arguments.json:
        write_json(HISTORY, history_levels(series, changes, remark))
        return
    console = stdout()
    console.print(history_table(series, changes))
    for sentence in change_sentences(series, changes or [() for _ in series]):
        console.print(sentence)
    if remark:
        console.print(remark)


def _export(arguments: argparse.Namespace, file: Path) -> None:
    import polars as pl

    from gpuprof.collectors.files.writing import refuse_existing, whole_file, write_parquet
    from gpuprof.profiler.gate.history import History
    from gpuprof.reports.formatting import counted
    from gpuprof.roofline.gate.history import Value

    refuse_existing(file, force=arguments.force, option="file")
    values = History(arguments.db).values(branch=arguments.branch)
    kinds = {"measured_ns": pl.Int64, "pair": pl.Int64, "value": pl.Float64}
    columns = Value.__struct_fields__
    frame = pl.DataFrame(
        {name: [getattr(value, name) for value in values] for name in columns},
        schema={name: kinds.get(name, pl.String) for name in columns},
    )
    with whole_file(file) as temporary:
        write_parquet(frame, temporary)
    _tell_of(file, f"Wrote {file}: {counted(frame.height, 'row')}", arguments)


def _plot(arguments: argparse.Namespace, file: Path) -> None:
    from gpuprof.collectors.files.writing import refuse_existing, write_file
    from gpuprof.profiler.gate.change_points import change_points_or_remark
    from gpuprof.reports.history.page import render_history

    refuse_existing(file, force=arguments.force, option="file")
    series = _series(arguments)
    changes, remark = change_points_or_remark(series)
    page = render_history(series, changes or [() for _ in series], remark=remark)
    write_file(file, page.encode())
    said = f"Wrote {file}: {len(series)} series"
    _tell_of(file, f"{said}\n{remark}" if remark else said, arguments)


def _tell_of(file: Path, said: str, arguments: argparse.Namespace) -> None:
    """Print that `file` was written, as was asked for."""
    from gpuprof.reports.console.streams import write_line
    from gpuprof.reports.json_answers.of_captures import WrittenFiles

    if arguments.json:
        write_json(FILES, WrittenFiles((str(file),)))
    else:
        write_line(said)
