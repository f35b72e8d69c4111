"""`gpuprof report`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import ANALYSIS

if TYPE_CHECKING:
    from gpuprof.roofline.analysis import Analysis

_STDOUT = Path("-")
_SUFFIXES = (".html", ".md", ".json")


class ReportCommand:
    """Write the report of a capture: one HTML file that needs no network.

    The ending of -o chooses the form: .html, .md or .json.
    """

    name = "report"
    summary = "write the report of a capture as HTML, Markdown or JSON"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument("capture", type=Path, help="folder that gpuprof run or analyze made")
        form = parser.add_mutually_exclusive_group()
        add_json(form, ANALYSIS)
        form.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="FILE",
            help="file to write (CAPTURE.html here); - is stdout, as HTML",
        )
        parser.add_argument("-f", "--force", action="store_true", help="replace an old report")
        parser.add_argument(
            "--open", action="store_true", help="show the page in a browser once it is written"
        )
        parser.add_argument(
            "--rank", type=int, metavar="R", help="the rank to show (the one that was analysed)"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` before any work, and `CaptureError`."""
        from gpuprof.collectors.files.writing import refuse_existing, write_file
        from gpuprof.profiler.captures import load_analysis
        from gpuprof.profiler.page_output import PageOutput
        from gpuprof.reports.console.streams import write_bytes, write_note

        if arguments.json:
            if arguments.open:
                raise CommandError("--open shows an HTML page, and not JSON", exit_code=2)
            write_json(ANALYSIS, load_analysis(arguments.capture, arguments.rank))
            return 0
        output = arguments.output or default_output(arguments.capture)
        if arguments.open and output.suffix.lower() != ".html":
            raise CommandError(f"--open shows an HTML page, and not {output}", exit_code=2)
        if output == _STDOUT:
            write_bytes(render(load_analysis(arguments.capture, arguments.rank), ".html"))
            return 0
        suffix = output.suffix.lower()
        if suffix not in _SUFFIXES:
            expected = ", ".join(_SUFFIXES)
            raise CommandError(f"{output}: the name must end in one of {expected}", exit_code=2)
        if suffix == ".html":
            page = PageOutput(output, opens=arguments.open)
            page.refuse_existing(force=arguments.force)
            write_note(f"gpuprof: {page.write(load_analysis(arguments.capture, arguments.rank))}")
            return 0
        refuse_existing(output, force=arguments.force)
        write_file(output, render(load_analysis(arguments.capture, arguments.rank), suffix))
        write_note(f"gpuprof: wrote {output}")
        return 0


def default_output(capture: Path) -> Path:
    """The capture's name with .html, in the working directory."""
    name = capture.absolute().name.removesuffix(".gpuprof")
    return Path(f"{name or 'report'}.html")


def render(analysis: "Analysis", suffix: str) -> bytes:
    """The report in the form that `suffix` names, as UTF-8. Only that form's module is imported."""
    if suffix == ".md":
        from gpuprof.reports.markdown import render_markdown

        return render_markdown(analysis).encode()
    if suffix == ".json":
        from gpuprof.reports.json_answers.rendering import render_json

        return render_json(ANALYSIS, analysis)
    from gpuprof.reports.html.page import render_html

    return render_html(analysis).encode()
