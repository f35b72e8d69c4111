"""gpuprof: how fast a PyTorch program runs against what the machine can do.

Names are imported on first use, so that `import gpuprof` costs nothing in a program that only
marks its steps and `gpuprof --help` needs neither torch nor polars.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuprof._version import __version__

if TYPE_CHECKING:
    from gpuprof.collectors.capture import Capture
    from gpuprof.collectors.errors import (
        CaptureError,
        CollectorError,
        CommandError,
        GpuprofError,
        MissingDependencyError,
    )
    from gpuprof.collectors.storage import load
    from gpuprof.profiler.api import profile
    from gpuprof.profiler.bench.benchmark import benchmark
    from gpuprof.profiler.program_marks import region, step
    from gpuprof.roofline.analysis import Analysis
    from gpuprof.roofline.analyze import analyze
    from gpuprof.roofline.cost_models import cost_model
    from gpuprof.roofline.cost_models.cost import Cost, Flops

_HOME_OF = {
    "Analysis": "gpuprof.roofline.analysis",
    "Capture": "gpuprof.collectors.capture",
    "CaptureError": "gpuprof.collectors.errors",
    "CollectorError": "gpuprof.collectors.errors",
    "CommandError": "gpuprof.collectors.errors",
    "Cost": "gpuprof.roofline.cost_models.cost",
    "Flops": "gpuprof.roofline.cost_models.cost",
    "GpuprofError": "gpuprof.collectors.errors",
    "MissingDependencyError": "gpuprof.collectors.errors",
    "analyze": "gpuprof.roofline.analyze",
    "benchmark": "gpuprof.profiler.bench.benchmark",
    "cost_model": "gpuprof.roofline.cost_models",
    "load": "gpuprof.collectors.storage",
    "profile": "gpuprof.profiler.api",
    "region": "gpuprof.profiler.program_marks",
    "step": "gpuprof.profiler.program_marks",
}

__all__ = [
    "Analysis",
    "Capture",
    "CaptureError",
    "CollectorError",
    "CommandError",
    "Cost",
    "Flops",
    "GpuprofError",
    "MissingDependencyError",
    "__version__",
    "analyze",
    "benchmark",
    "cost_model",
    "load",
    "profile",
    "region",
    "step",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'gpuprof' has no attribute {name!r}")
    found = getattr(import_module(home), name)
    # Asked once: a script may say `gpuprof.step()` every millisecond.
    globals()[name] = found
    return found


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gpuprof` in a notebook: the cell magic `%%gpuprof`."""
    import_module("gpuprof.profiler.notebook.magic").load(shell)


def __dir__() -> list[str]:
    return sorted(__all__)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    # In a notebook captures and analyses show themselves.
    import_module("gpuprof.profiler.notebook.formatters").show_in(_shell)
