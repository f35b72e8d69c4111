"""The list of a folder's captures as an HTML page, with what leads to their pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from gpuprof._version import __version__
from gpuprof.reports import formatting
from gpuprof.reports.html.templating import PageLink, make_environment, scripts, source
from gpuprof.reports.sections.overview import device_line
from gpuprof.reports.sections.step import step_time_fact
from gpuprof.reports.utilization import headline_fact
from gpuprof.roofline.analysis import Analysis


@dataclass(frozen=True, kw_only=True)
class ListedCapture:
    """One row: a capture with its first figures, or why it cannot be read."""

    # Its path in the folder.
    name: str
    title: str = ""
    created_ns: int = 0
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
        created_ns=analysis.created_ns,
        made=formatting.date(analysis.created_ns),
        device=device_line(analysis),
        step=step_time_fact(analysis.steps).value,
        utilization=f"{fact.label} {fact.value}",
        bound_by="" if analysis.binds is None else analysis.binds.kind,
        largest_loss=analysis.bottleneck.kind,
    )


def render_listing(folder: str, rows: Sequence[ListedCapture], *, has_history: bool) -> str:
    """The list, the newest first; two of its captures can be chosen and compared.

    What cannot be read comes last.
    """
    newest = sorted(rows, key=lambda row: -row.created_ns)
    return _render(
        folder, rows=newest, chosen=_first_choice(newest), has_history=has_history, problem=""
    )


def _first_choice(newest: Sequence[ListedCapture]) -> tuple[str, str]:
    """Base and head until somebody chooses: the newest, and the one of its program before it."""
    readable = [row for row in newest if not row.problem]
    if not readable:
        return "", ""
    head, *older = readable
    of_its_program = [row for row in older if row.title == head.title]
    base = (of_its_program or older)[:1]
    return base[0].name if base else "", head.name


def render_problem(sentence: str, links: Sequence[PageLink]) -> str:
    """A page that says why there is none."""
    problem = formatting.sentence(sentence)
    return _render("No page", rows=(), has_history=False, problem=problem, links=links)


def _render(
    title: str,
    *,
    rows: Sequence[ListedCapture],
    has_history: bool,
    problem: str,
    chosen: tuple[str, str] = ("", ""),
    links: Sequence[PageLink] = (),
) -> str:
    environment = make_environment()
    return environment.get_template("listing.html").render(
        title=formatting.printable(title),
        links=links,
        chosen=chosen,
        rows=rows,
        has_history=has_history,
        problem=problem,
        version=__version__,
        style=source(environment, "report.css"),
        script=scripts(environment),
    )
