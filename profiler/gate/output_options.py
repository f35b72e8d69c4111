"""The options that say where a gate's result goes."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuprof.profiler.gate.outputs import Outputs

_FORMS = {
    "json": "the whole result (gate.json of the folder)",
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
    for form, content in _FORMS.items():
        parser.add_argument(f"--{form}", type=Path, metavar="FILE", help=f"also write {content}")


def outputs_of(arguments: argparse.Namespace) -> "Outputs":
    """Where the result goes, by the options of `add_outputs`."""
    from gpuprof.profiler.gate.outputs import FORMS, Outputs

    files = {form: file for form in FORMS if (file := getattr(arguments, form)) is not None}
    return Outputs(arguments.output, files)
