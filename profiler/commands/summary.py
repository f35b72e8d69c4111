"""`gpuprof summary`."""

import argparse
import io
import sys
from pathlib import Path


class SummaryCommand:
    """Print what a capture says: step time, MFU, where time goes, what holds it back.

    The same summary that `gpuprof run` ends with.
    """

    name = "summary"
    summary = "print the summary of a capture"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument("capture", type=Path, help="folder that gpuprof run or analyze made")

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CaptureError`."""
        from rich.console import Console

        from gpuprof.profiler.captures import load_analysis
        from gpuprof.reports.terminal import render_summary

        analysis = load_analysis(arguments.capture)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # An ASCII-only stdout gets a question mark for "µ", not a traceback.
            sys.stdout.reconfigure(errors="replace")
        render_summary(analysis, Console(), arguments.capture)
        return 0
