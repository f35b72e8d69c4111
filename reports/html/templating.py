"""What the HTML pages share: the template environment, and data that is safe inside a page."""

import jinja2
import msgspec
from markupsafe import Markup

from gpuprof.reports import facts, formatting, measured
from gpuprof.roofline.classes import classes

# Characters that could end a script element or a line of script inside JSON.
_JSON_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}"}


def embedded_json(value: msgspec.Struct) -> Markup:
    """`value` as JSON that is safe inside a script element: no <, > or & stands in it."""
    text = msgspec.json.encode(value, order="deterministic").decode()
    return Markup(text.translate(_JSON_ESCAPES))


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
        classes=classes, facts=facts, formatting=formatting, measuring=measured
    )
    environment.filters["printable"] = formatting.printable
    return environment


def source(environment: jinja2.Environment, name: str) -> Markup:
    """A template file of this package as it is: its own style or script, not data."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])
