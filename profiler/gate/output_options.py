"""The options that say where a gate's result goes."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.profiler.json_output import JsonOutput, add_json_or_file
from gpuprof.reports.json_answers.schemas import GATE

if TYPE_CHECKING:
    from gpuprof.profiler.gate.outputs import Outputs

_FORMS = {
    "html": "the page (report.html of the folder)",
    "markdown": "the verdicts as Markdown",
    "comment": "them as a pull request's comment, under 60 kB",
    "junit": "them as JUnit XML",
}


def add_outputs(parser: argparse.ArgumentParser, what: str) -> None:
    """-o, --force and a file for each form; `what` says of the folder what it is for."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("gpuprof-gate"),
        metavar="FOLDER",
        help=f"{what} (gpuprof-gate)",
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an old result")
    add_json_or_file(parser, GATE)
    for form, content in _FORMS.items():
        parser.add_argument(f"--{form}", type=Path, metavar="FILE", help=f"also write {content}")


def outputs_of(arguments: argparse.Namespace) -> "Outputs":
    """Where the result goes, by the options of `add_outputs`."""
    from gpuprof.profiler.gate.outputs import Outputs

    json = JsonOutput.of(arguments)
    places = {**{form: getattr(arguments, form) for form in _FORMS}, "json": json.file}
    files = {form: file for form, file in places.items() if file is not None}
    return Outputs(arguments.output, files, prints_json=json.alone)
