"""`gpuprof summary`."""

import argparse
from pathlib import Path

from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import SUMMARY


class SummaryCommand:
    """Print what a capture says: step time, MFU, where time goes, what limits it.

    The same summary that `gpuprof run` ends with.
    """

    name = "summary"
    summary = "print the summary of a capture"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument("capture", type=Path, help="folder that gpuprof run or analyze made")
        form = parser.add_mutually_exclusive_group()
        form.add_argument(
            "--markdown",
            action="store_true",
            help="as Markdown of one screen, for a comment on a pull request",
        )
        add_json(form, SUMMARY)
        parser.add_argument(
            "--rank", type=int, metavar="R", help="the rank to show (the one that was analysed)"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CaptureError`."""
        from gpuprof.profiler.captures import load_analysis

        analysis = load_analysis(arguments.capture, arguments.rank)
        if arguments.markdown:
            from gpuprof.reports.console.streams import write_bytes
            from gpuprof.reports.markdown_summary import render_markdown_summary

            write_bytes(render_markdown_summary(analysis).encode())
            return 0
        if arguments.json:
            from gpuprof.reports.json_answers.of_captures import Summary

            write_json(SUMMARY, Summary.of(analysis))
            return 0
        from gpuprof.reports.console.terminal import stdout
        from gpuprof.reports.terminal import render_summary

        render_summary(analysis, stdout(), arguments.capture)
        return 0
