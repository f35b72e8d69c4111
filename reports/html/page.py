"""Fills the page: everything in one file that needs neither network nor, for its tables, script."""

from dataclasses import dataclass

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from gpuprof.reports import facts, formatting, measured
from gpuprof.reports.html.chart import make_chart
from gpuprof.reports.html.l2_points import l2_points
from gpuprof.reports.html.step_plot import make_step_plot
from gpuprof.reports.html.tables import Table, make_row, make_table
from gpuprof.reports.html.templating import embedded_json, make_environment, source
from gpuprof.reports.utilization import headline_fact, utilization_facts
from gpuprof.roofline.analysis import NEGLIGIBLE, Analysis
from gpuprof.roofline.classes import AT_ROOF, UNKNOWN, bottleneck_class


@dataclass(frozen=True)
class Tile:
    """One of the figures at the head of the page."""

    label: str
    value: str
    note: str


def render_html(analysis: Analysis) -> str:
    """The report as one HTML file. The same analysis gives the same text."""
    environment = make_environment()
    tables = _tables(analysis)
    step_row = make_row("step-0", analysis.step, analysis.steps.profiled) if analysis.step else None
    levels = [
        *(
            (table.key, table.title, [(row.id, row.point) for row in table.rows])
            for table in (tables[1], tables[0], *tables[2:])
        ),
        ("step", "Step", [(step_row.id, step_row.point)] if step_row else []),
        ("l2", "Kernels at L2", l2_points(analysis)),
    ]
    chart = make_chart(analysis, levels)
    return environment.get_template("report.html").render(
        analysis=analysis,
        title=formatting.printable(analysis.title),
        tables=[table for table in tables if table.rows],
        tiles=_tiles(analysis),
        chart=chart,
        chart_json=None if chart is None else embedded_json(chart),
        utilization_facts=utilization_facts(analysis),
        step_row=step_row,
        measured=None if analysis.measured is None else measured.measured_rows(analysis.measured),
        step_plot=make_step_plot(analysis.steps),
        split=facts.step_shares(analysis.split) if analysis.split else (),
        warnings=[
            formatting.printable(facts.sentence(text))
            for text in (facts.ending_sentence(analysis), *analysis.warnings)
            if text
        ],
        # Markup: these are this package's own files and plotly's, not data.
        style=source(environment, "report.css"),
        script=source(environment, "report.js"),
        plotly=Markup(get_plotlyjs()) if chart else "",
    )


def _tables(analysis: Analysis) -> tuple[Table, ...]:
    """Operators, kernels and ranges."""
    steps = analysis.steps.profiled
    kernels = "Leaf operators" if facts.is_cpu(analysis) else "Kernels"
    kernel = "Leaf operator" if facts.is_cpu(analysis) else "Kernel"
    return (
        make_table("op", "Operators", "Operator", analysis.ops, steps),
        make_table("kernel", kernels, kernel, analysis.kernels, steps),
        make_table("range", "Ranges", "Range", analysis.ranges, steps),
    )


def _tiles(analysis: Analysis) -> tuple[Tile, ...]:
    """Step time, MFU or MBU, share of the roof, waiting, the profiler's stretch, coverage."""
    time, stretch = facts.step_time_fact(analysis.steps), facts.stretch_fact(analysis.steps)
    utilization = headline_fact(analysis)
    covered = analysis.coverage.with_flops
    return (
        Tile("Step time", time.value, time.note),
        Tile(utilization.label, utilization.value, utilization.note),
        _roof_tile(analysis),
        _waiting_tile(analysis),
        Tile(
            "Modelled",
            formatting.percent(covered),
            "no device work seen" if covered is None else "of device time has a FLOP model",
        ),
        Tile("Profiler stretch", stretch.value, stretch.note),
    )


def _roof_tile(analysis: Analysis) -> Tile:
    title, split = "Device work at its roof", analysis.split
    unmodelled_ns = split.nanoseconds(UNKNOWN) if split is not None else 0
    modelled_ns = split.busy_ns - unmodelled_ns if split is not None else 0
    if split is None or analysis.roof_source is None or not modelled_ns:
        return Tile(title, formatting.UNKNOWN, "no ceiling or no model")
    # As the bar below has it: each operator against its own roof.
    note = "of its time would remain if every operator ran at its roof"
    unmodelled = unmodelled_ns / split.busy_ns
    if unmodelled > NEGLIGIBLE:
        note += f"; without the {formatting.percent(unmodelled)} that have no model"
    return Tile(title, formatting.percent(split.nanoseconds(AT_ROOF) / modelled_ns), note)


def _waiting_tile(analysis: Analysis) -> Tile:
    split = analysis.split
    if split is None or not split.idle_parts:
        return Tile("Waiting for the host", formatting.UNKNOWN, "the step has no split")
    idle = sum(share.fraction for share in facts.step_shares(split) if share.row.idle)
    label = bottleneck_class(split.idle_parts[0].kind).part
    time, step = formatting.duration(split.idle_ns), facts.step_duration(split.step_ns)
    kind = "a step" if split.basis == "timed" else "a profiled step"
    note = f"{time} of {kind} of {step}"
    return Tile(label.capitalize(), formatting.percent(idle), note)
