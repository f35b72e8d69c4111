"""What the HTML pages share: the template environment, and data that is safe inside a page."""

import re
from dataclasses import dataclass
from functools import cache

import jinja2
import msgspec
from markupsafe import Markup, escape

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block
from gpuprof.reports.figures import (
    at_its_clock,
    device_share,
    device_time_ns,
    is_unexplained,
    per_step,
    point_roof_percent,
    step_basis,
)
from gpuprof.reports.html.fill_patterns import pattern_of
from gpuprof.reports.html.heat_map import make_heat_map
from gpuprof.reports.html.memory_plot import draw_memory, make_memory_plot
from gpuprof.reports.html.picture import make_picture
from gpuprof.reports.html.run_plot import make_run_plot
from gpuprof.reports.html.step_plot import make_step_plot
from gpuprof.reports.html.timeline_data import make_timeline
from gpuprof.reports.html.timeline_drawing import draw_timeline
from gpuprof.reports.point_rows import make_rows, point_figures
from gpuprof.roofline.classes import ClassName, classes

# Characters that could end a script element or a line of script inside JSON.
_JSON_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}"}


def embedded_json(value: msgspec.Struct) -> Markup:
    """`value` as JSON that is safe inside a script element: no <, > or & stands in it."""
    text = msgspec.json.encode(value, order="deterministic").decode()
    return Markup(text.translate(_JSON_ESCAPES))


@cache
def make_environment() -> jinja2.Environment:
    """Templates of this package. Names are escaped, and an unknown one is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpuprof.reports.html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(
        classes=classes,
        draw_memory=draw_memory,
        draw_timeline=draw_timeline,
        embedded_json=embedded_json,
        formatting=formatting,
        is_unexplained=is_unexplained,
        links=(),
        make_heat_map=make_heat_map,
        make_memory_plot=make_memory_plot,
        make_picture=make_picture,
        make_rows=make_rows,
        make_run_plot=make_run_plot,
        make_step_plot=make_step_plot,
        make_timeline=make_timeline,
        pattern_of=pattern_of,
        device_share=device_share,
        device_time_ns=device_time_ns,
        per_step=per_step,
        point_figures=point_figures,
        point_roof_percent=point_roof_percent,
        at_its_clock=at_its_clock,
        step_basis=step_basis,
    )
    environment.filters["css_class"] = _css_class
    environment.filters["printable"] = formatting.printable
    environment.filters["template"] = _template
    environment.filters["with_bold"] = _with_bold
    return environment


def source(environment: jinja2.Environment, name: str) -> Markup:
    """A template file of this package as it is: its own style or script, not data."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


@dataclass(frozen=True)
class PageLink:
    """A link from a page to another one, where pages are shown together (`gpuprof serve`)."""

    text: str
    # Relative to the page's.
    address: str


# What all pages with tables need.
_SHARED_SCRIPTS = ("tables.js", "keyboard.js")


def scripts(environment: jinja2.Environment, *own: str) -> Markup:
    """The script of all pages, and after it the page's `own` files."""
    return Markup("\n").join(source(environment, name) for name in (*_SHARED_SCRIPTS, *own))


def _css_class(kind: ClassName) -> str:
    """The style of a bottleneck class: "class-garbage-collection". A space would make it two."""
    return f"class-{kind.replace(' ', '-')}"


def _template(block: Block) -> str:
    """The template that draws `block`: "blocks/step_plot.html" for a `StepPlot`."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", type(block).__name__).lower()
    return f"blocks/{words}.html"


def _with_bold(text: str) -> Markup:
    """`text` with what stands between ** in bold."""
    parts = (escape(part) for part in text.split("**"))
    return Markup("").join(
        Markup("<b>{}</b>").format(part) if index % 2 else part for index, part in enumerate(parts)
    )
