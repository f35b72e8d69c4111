"""What a notebook shows of a capture: escaped, with its figures outside of the frame too."""

import re
from pathlib import Path

import msgspec
from capture_builder import CaptureBuilder
from IPython.core.formatters import DisplayFormatter
from markupsafe import escape

from gpuprof.profiler.api import profile
from gpuprof.profiler.notebook.formatters import show_in
from gpuprof.reports.html.notebook import notebook_html
from gpuprof.reports.sections.headline import headline
from gpuprof.roofline.analyze import analyze


class Shell:
    """As much of IPython as shows objects."""

    def __init__(self) -> None:
        self.display_formatter = DisplayFormatter()


def test_names_from_a_capture_are_text() -> None:
    name = '</iframe><script>alert("1")</script>'
    analysis = msgspec.structs.replace(analyze(CaptureBuilder().build()), title=name)
    html = notebook_html(analysis, Path("<b>.gpuprof"))
    assert "<script" not in html
    assert "<b>.gpuprof" not in html
    assert html.count("</iframe>") == 1
    outside = re.sub(r"<iframe.*</iframe>", "", html, flags=re.DOTALL)
    assert "&lt;script&gt;alert" in outside


def test_captures_and_analyses_show_themselves() -> None:
    shell = Shell()
    build = CaptureBuilder()
    build.step("profiled", 0, 1000)
    build.kernel(50, 100, 600)
    capture = build.build()
    before, _ = shell.display_formatter.format(capture)
    assert "text/html" not in before
    show_in(shell)
    analysis = analyze(capture)
    for shown in (capture, analysis):
        data, _ = shell.display_formatter.format(shown)
        assert escape(headline(analysis).sentence) in data["text/html"]
        assert "<iframe" in data["text/html"]


def test_before_its_block_has_ended_a_profile_is_shown_as_any_object() -> None:
    data, _ = DisplayFormatter().format(profile("never.gpuprof"))
    assert set(data) == {"text/plain"}
