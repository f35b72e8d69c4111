"""The list of a folder's captures as an HTML page, with what leads to their pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from gpuprof._version import __version__
from gpuprof.reports import formatting
from gpuprof.reports.html.templating import make_environment, scripts, source
from gpuprof.reports.sections.overview import device_line
from gpuprof.reports.sections.step import step_time_fact
from gpuprof.reports.utilization import headline_fact
from gpuprof.roofline.analysis import Analysis


@dataclass(frozen=True)
class ListedCapture:
    """One row: a capture with its first figures, or why it cannot be read."""

    # Its path in the folder.
    name: str
    title: str = ""
    made: str = ""
    device: str = ""
    step: str = ""
    utilization: str = ""
    bound_by: str = ""
    largest_loss: str = ""
    problem: str = ""

    @property
    def address(self) -> str:
        """Of its page, relative to the list's."""
        return f"capture/{quote(self.name)}"


def listed(name: str, analysis: Analysis) -> ListedCapture:
    """The row of a capture."""
    fact = headline_fact(analysis)
    return ListedCapture(
        name=name,
        title=analysis.title,
        made=formatting.date(analysis.created_ns),
        device=device_line(analysis),
        step=step_time_fact(analysis.steps).value,
        utilization=f"{fact.label} {fact.value}",
        bound_by="" if analysis.binds is None else analysis.binds.kind,
        largest_loss=analysis.bottleneck.kind,
    )


def render_listing(folder: str, rows: Sequence[ListedCapture], *, has_history: bool) -> str:
    """The list, the newest first as given; two of its captures can be chosen and compared."""
    return _render(folder, rows=rows, has_history=has_history, problem="")


def render_problem(sentence: str) -> str:
    """A page that says why there is none."""
    return _render("No page", rows=(), has_history=False, problem=formatting.sentence(sentence))


def _render(title: str, *, rows: Sequence[ListedCapture], has_history: bool, problem: str) -> str:
    environment = make_environment()
    return environment.get_template("listing.html").render(
        title=formatting.printable(title),
        rows=rows,
        has_history=has_history,
        problem=problem,
        version=__version__,
        style=source(environment, "report.css"),
        script=scripts(environment),
    )
