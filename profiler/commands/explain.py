"""`gpuprof explain`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.amounts import whole
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import EXPLAIN, MATCHES

if TYPE_CHECKING:
    from gpuprof.roofline.analysis import Analysis, RooflinePoint

_MOST_LISTED = 30


class ExplainCommand:
    """Explain one operator or kernel through all layers.

    Its line and module, the operators around it, its shapes, which implementation
    torch chose and why no other one, its kernels with their names decoded, how they
    were launched, their time, FLOPs and bytes, its roof and class, and counters.

    NAME is compared with whole names first (aten::mm or mm), then with parts of
    them. Of several matches --pick chooses one.
    """

    name = "explain"
    summary = "explain one operator or kernel of a capture or trace"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument(
            "capture", type=Path, help="capture, or a trace that gpuprof analyze reads"
        )
        parser.add_argument("name", metavar="NAME", help="name of an operator or kernel, or a part")
        parser.add_argument(
            "--pick", type=whole, metavar="N", help="of several matches the one numbered N"
        )
        parser.add_argument("--rank", type=int, metavar="R", help="the rank to look at (the first)")
        add_json(parser, EXPLAIN)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` for a name that nothing has, and `CaptureError`."""
        from gpuprof.profiler.captures import read_capture_and_analysis
        from gpuprof.reports.console.terminal import stdout
        from gpuprof.reports.explanation import render_explanation
        from gpuprof.roofline.explain.choosing import matches
        from gpuprof.roofline.explain.explain import explain, points_under

        capture, analysis = read_capture_and_analysis(arguments.capture, arguments.rank)
        found = matches(analysis, arguments.name)
        found = found or points_under(capture, analysis, arguments.name)
        if not found:
            raise CommandError(_no_match(analysis, arguments.name), exit_code=2)
        if len(found) > 1 and arguments.pick is None:
            _print_matches(analysis, found, arguments)
            return 0
        number = arguments.pick or 1
        if number > len(found):
            which = f"{arguments.name} has {len(found)} match{'es' if len(found) > 1 else ''}"
            raise CommandError(f"--pick {number}: {which}", exit_code=2)
        explanation = explain(capture, analysis, found[number - 1])
        if arguments.json:
            write_json(EXPLAIN, explanation)
        else:
            render_explanation(explanation, stdout())
        return 0


def _no_match(analysis: "Analysis", name: str) -> str:
    from gpuprof.roofline.explain.choosing import near_names

    if not analysis.ops:
        return f"{name}: no device work was recorded in the profiled steps"
    near = near_names(analysis, name)
    other = f"; near: {', '.join(near)}" if near else "; gpuprof report lists all"
    return f"{name}: no operator or kernel is called so{other}"


def _print_matches(
    analysis: "Analysis", found: "tuple[RooflinePoint, ...]", arguments: argparse.Namespace
) -> None:
    from gpuprof.reports.console.terminal import stdout
    from gpuprof.reports.explanation import render_matches

    if arguments.json:
        from gpuprof.reports.json_answers.of_captures import Matches

        write_json(MATCHES, Matches(found))
    else:
        render_matches(analysis, found, stdout(), most=_MOST_LISTED)
