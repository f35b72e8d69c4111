"""`gpuprof export`."""

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import FILES, SENT, JsonSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from gpuprof.reports.tracked_run import TrackedRun
    from gpuprof.roofline.analysis import Analysis

_TABLES = ("csv", "parquet")
_DRAWINGS = ("svg", "png")
_TRACKERS = ("wandb", "mlflow", "tensorboard")


class ExportCommand:
    """Write the figures of a capture as tables, its plots as drawings, or send it.

    csv and parquet: each list of the analysis (kernels, ops, idle.causes, ...) is a
    file of its own. svg and png: so is each plot of the report's page. With --to a
    tracker of experiments gets step time, MFU, HFU, the split and the page.
    """

    name = "export"
    summary = (
        "write a capture's figures as tables, its plots as SVG or PNG, or send it to a tracker"
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument("capture", type=Path, help="folder that gpuprof run or analyze made")
        parser.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="FOLDER",
            help="folder to make (CAPTURE-tables or CAPTURE-plots here); of tensorboard the "
            "folder of a run, which may exist (runs/CAPTURE)",
        )
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--format", choices=(*_TABLES, *_DRAWINGS), help="of the files (csv)")
        form.add_argument(
            "--to",
            choices=_TRACKERS,
            help="send it to Weights & Biases, MLflow or TensorBoard, by their own packages",
        )
        parser.add_argument(
            "--rank", type=int, metavar="R", help="the rank to write (the one that was analysed)"
        )
        add_json(parser, _schema)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` before any work, and `CaptureError`."""
        name = arguments.capture.absolute().name.removesuffix(".gpuprof")
        if arguments.to is None:
            _export_files(arguments, name)
        else:
            _send(arguments, name)
        return 0


def _schema(arguments: argparse.Namespace) -> JsonSchema:
    return FILES if arguments.to is None else SENT


def _export_files(arguments: argparse.Namespace, name: str) -> None:
    from gpuprof.collectors.files.writing import refuse_unwritable, under_a_temporary_name
    from gpuprof.profiler.captures import load_analysis
    from gpuprof.reports.console.streams import write_note
    from gpuprof.reports.formatting import counted

    suffix = arguments.format or "csv"
    kind = "tables" if suffix in _TABLES else "plots"
    output = arguments.output or Path(f"{name}-{kind}")
    if output.exists():
        raise CommandError(f"{output} exists; choose another -o")
    refuse_unwritable(output)
    if suffix == "png":
        from gpuprof.reports.drawing_files import require_png

        require_png()
    analysis = load_analysis(arguments.capture, arguments.rank)
    write = _write_tables if kind == "tables" else _write_plots
    with under_a_temporary_name(output) as folder:
        folder.mkdir()
        number = write(analysis, folder, suffix)
        folder.rename(output)
    if arguments.json:
        from gpuprof.reports.json_answers.of_captures import WrittenFiles

        write_json(FILES, WrittenFiles(tuple(map(str, sorted(output.iterdir())))))
    write_note(f"gpuprof: wrote {counted(number, kind.removesuffix('s'))} into {output}")


def _send(arguments: argparse.Namespace, name: str) -> None:
    """Send the capture to a tracker. Its package, and the folder, are tried before any work."""
    from gpuprof.profiler.captures import load_analysis
    from gpuprof.reports.console.streams import write_note
    from gpuprof.reports.tracked_run import tracked_run

    send = _sender(arguments.to, arguments.output, name)
    run = tracked_run(load_analysis(arguments.capture, arguments.rank))
    # Some packages print what they do, and stdout is for JSON.
    with redirect_stdout(sys.stderr):
        place = send(run)
    if arguments.json:
        from gpuprof.reports.json_answers.of_captures import SentRun

        write_json(SENT, SentRun(tracker=arguments.to, place=place, figures=run.figures))
    write_note(f"gpuprof: sent to {arguments.to}: {place}")


def _sender(tracker: str, output: Path | None, name: str) -> "Callable[[TrackedRun], str]":
    """What sends to `tracker`, and returns where the run is."""
    if tracker == "tensorboard":
        from gpuprof.profiler.trackers.tensorboard_files import into

        return into(output or Path("runs") / name)
    if output is not None:
        raise CommandError(
            f"-o is the folder of --to tensorboard; {tracker} has its own settings", exit_code=2
        )
    if tracker == "wandb":
        from gpuprof.profiler.trackers import weights_and_biases

        return weights_and_biases.send
    from gpuprof.profiler.trackers import mlflow_server

    return mlflow_server.send


def _write_tables(analysis: "Analysis", folder: Path, suffix: str) -> int:
    """Each table as a file in `folder`; how many they are."""
    from gpuprof.reports.exported_tables import exported_tables

    tables = exported_tables(analysis)
    for table, frame in tables.items():
        _write(frame, folder / f"{table}.{suffix}")
    return len(tables)


def _write_plots(analysis: "Analysis", folder: Path, suffix: str) -> int:
    """Each plot as a file in `folder`; how many they are. Raises `CommandError` without any."""
    from gpuprof.reports.drawing_files import drawing_bytes
    from gpuprof.reports.html.page import render_html
    from gpuprof.reports.html.standalone import standalone_drawings

    drawings = standalone_drawings(render_html(analysis))
    if not drawings:
        raise CommandError("the capture's page has no plot: nothing in it has a time or a rate")
    for drawing in drawings:
        path = folder / f"{drawing.name}.{suffix}"
        path.write_bytes(drawing_bytes(drawing.svg, path.suffix))
    return len(drawings)


def _write(frame: "pl.DataFrame", path: Path) -> None:
    from gpuprof.collectors.files.writing import write_parquet

    if path.suffix == ".parquet":
        write_parquet(frame, path)
        return
    from gpuprof.reports.exported_tables import as_csv

    path.write_bytes(as_csv(frame))
