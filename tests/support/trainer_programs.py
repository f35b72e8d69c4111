"""The programs of examples/trainers, and what runs them for tests/integrations."""

from collections.abc import Callable
from pathlib import Path

from gpuprof.roofline.analysis import Analysis

PROGRAMS = Path(__file__).parents[2] / "examples" / "trainers"

# `python ARGUMENTS` in the test's own folder, with environment variables; what it printed.
RunPython = Callable[..., str]
# `gpuprof run` of a program, with its arguments; the analysis.
ProfiledRun = Callable[..., Analysis]
