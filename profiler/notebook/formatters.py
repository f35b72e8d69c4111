"""How the objects of the Python API show themselves in IPython: as the report.

Captures and analyses know nothing of reports, so IPython is told of them by their names; it calls
these functions only for such an object.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuprof.collectors.capture import Capture
    from gpuprof.roofline.analysis import Analysis


def show_in(shell: Any) -> None:
    """Let `shell`, an IPython, show captures and analyses; may be called again."""
    html = shell.display_formatter.formatters["text/html"]
    html.for_type_by_name("gpuprof.collectors.capture", "Capture", _capture_html)
    html.for_type_by_name("gpuprof.roofline.analysis", "Analysis", _analysis_html)


def _capture_html(capture: "Capture") -> str:
    from gpuprof.roofline.analyze import analyze

    return _analysis_html(analyze(capture))


def _analysis_html(analysis: "Analysis") -> str:
    from gpuprof.reports.html.notebook import notebook_html

    return notebook_html(analysis)
