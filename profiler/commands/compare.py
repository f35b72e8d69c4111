"""`gpuprof compare`."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.amounts import whole
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import COMPARE

if TYPE_CHECKING:
    from gpuprof.roofline.analysis import Analysis
    from gpuprof.roofline.comparison.result import Comparison

_SUFFIXES = (".html", ".md", ".json", ".svg", ".png")
_TOP = 5
_REGRESSED, _INCOMPARABLE = 1, 3


class CompareCommand:
    """Show what changed from one capture to another, kernel by kernel.

    Takes captures and every file that gpuprof analyze reads. Kernels are matched
    by name, by name without tile sizes and counters, by operator and shapes, and
    last by time. One run of each side cannot tell a regression from noise; gpuprof
    gate can.
    """

    name = "compare"
    summary = "show what changed from one capture to another"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument("base", type=Path, help="capture or trace before the change")
        parser.add_argument("head", type=Path, help="capture or trace after the change")
        parser.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="FILE",
            help="also write it; the ending chooses .html, .md, .json, .svg or .png",
        )
        parser.add_argument("-f", "--force", action="store_true", help="replace an old file")
        add_json(parser, COMPARE)
        parser.add_argument("--rank", type=int, metavar="R", help="the rank to compare (the first)")
        parser.add_argument(
            "--head-rank", type=int, metavar="R", help="the head's, if it is another than --rank"
        )
        parser.add_argument(
            "--top", type=whole, default=_TOP, metavar="N", help=f"kernels to show ({_TOP})"
        )
        parser.add_argument(
            "--fail-on",
            type=_percent,
            metavar="PERCENT",
            help="exit with 1 if the step got slower by more, 3 if incomparable",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` before any work, and `CaptureError`."""
        from gpuprof.collectors.files.writing import refuse_existing, write_file
        from gpuprof.reports.console.streams import write_note
        from gpuprof.roofline.comparison.compare import compare

        output: Path | None = arguments.output
        if output is not None:
            if output.suffix.lower() not in _SUFFIXES:
                expected = ", ".join(_SUFFIXES)
                raise CommandError(f"{output}: the name must end in one of {expected}", exit_code=2)
            refuse_existing(output, force=arguments.force)
            if output.suffix.lower() == ".png":
                from gpuprof.reports.drawing_files import require_png

                require_png()
        head_rank = arguments.rank if arguments.head_rank is None else arguments.head_rank
        comparison = compare(
            _analysis(arguments.base, arguments.rank), _analysis(arguments.head, head_rank)
        )
        if arguments.json:
            write_json(COMPARE, comparison)
        else:
            _print(arguments, comparison)
        if output is not None:
            write_file(output, render(comparison, output.suffix.lower(), top=arguments.top))
            write_note(f"gpuprof: wrote {output}")
        return 0 if arguments.fail_on is None else verdict(comparison, arguments.fail_on)


def _print(arguments: argparse.Namespace, comparison: "Comparison") -> None:
    from gpuprof.reports.comparison.terminal import render_comparison
    from gpuprof.reports.console.terminal import stdout

    # The page has more than fits here, unless it was asked for already.
    paths = (str(arguments.base), str(arguments.head))
    ranks = (("--rank", arguments.rank), ("--head-rank", arguments.head_rank))
    chosen = (word for name, rank in ranks if rank is not None for word in (name, str(rank)))
    command = shlex.join(("gpuprof", "compare", *paths, *chosen, "-o", "change.html"))
    hint = "" if arguments.output else command
    render_comparison(comparison, stdout(), top=arguments.top, next_command=hint)


def verdict(comparison: "Comparison", allowed: float) -> int:
    """The exit code where a step may get slower by the fraction `allowed`."""
    lengths = comparison.lengths
    if comparison.strict_differences or lengths is None or lengths.change is None:
        return _INCOMPARABLE
    return _REGRESSED if lengths.change > allowed else 0


def render(comparison: "Comparison", suffix: str, *, top: int) -> bytes:
    """The comparison in the form that `suffix` names; text is UTF-8."""
    if suffix == ".md":
        from gpuprof.reports.comparison.markdown import render_comparison

        return render_comparison(comparison, top=top).encode()
    if suffix == ".json":
        from gpuprof.reports.json_answers.rendering import render_json

        return render_json(COMPARE, comparison)
    if suffix in (".svg", ".png"):
        return _drawn(comparison, suffix)
    from gpuprof.reports.comparison.page import render_html

    return render_html(comparison).encode()


def _drawn(comparison: "Comparison", suffix: str) -> bytes:
    """The change as a waterfall, and both rooflines, in one drawing. Raises `CommandError`."""
    from gpuprof.reports.comparison.headline import headline
    from gpuprof.reports.comparison.page import render_html
    from gpuprof.reports.drawing_files import drawing_bytes
    from gpuprof.reports.html.standalone import stacked_drawing

    drawing = stacked_drawing(render_html(comparison), headline(comparison))
    if drawing is None:
        raise CommandError("neither capture holds device work: there is nothing to draw")
    return drawing_bytes(drawing.svg, suffix)


def _analysis(path: Path, rank: int | None) -> "Analysis":
    """The analysis of a capture, or of what another tool recorded."""
    from gpuprof.profiler.captures import load_analysis, read_stored_analysis
    from gpuprof.profiler.reading_process import import_polars

    stored = read_stored_analysis(path)
    if stored is not None and rank in (None, stored.rank):
        return stored
    if (path / "manifest.json").is_file() and rank is None:
        return load_analysis(path)
    import_polars()
    from gpuprof.profiler.traces import analyze_rank, read_run
    from gpuprof.reports.console.streams import write_note

    return analyze_rank(read_run([path], lambda stage: write_note(f"gpuprof: {stage}")), rank)


def _percent(text: str) -> float:
    """A fraction from "5" or "5%"."""
    value = float(text.removesuffix("%")) / 100
    if not 0 <= value < float("inf"):
        raise ValueError
    return value
