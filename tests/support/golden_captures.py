"""Captures below tests/data by name, analysed and drawn once for all tests of one process."""

from functools import cache
from pathlib import Path

from gpuprof.collectors.opening import open_trace
from gpuprof.collectors.opening.paths import open_traces
from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

DATA = Path(__file__).parents[1] / "data"


@cache
def analysis_of(name: str, rank: int | None = None) -> Analysis:
    """Of a path below tests/data, or of several with spaces between them: files of one run."""
    paths = [DATA / part for part in name.split()]
    capture = open_trace(paths[0]) if len(paths) == 1 else open_traces(paths)
    return analyze(capture, rank=rank)


@cache
def page_of(name: str) -> str:
    """The page of `analysis_of(name)`."""
    return render_html(analysis_of(name))
