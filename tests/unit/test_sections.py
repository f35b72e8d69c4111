"""The sections of a report: one list that every renderer loops over."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from gpuprof.reports import sections
from gpuprof.reports.blocks import Column, Fact, Facts, Table
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.sections import SECTIONS
from gpuprof.reports.sections.section import Section, titled
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analysis import Analysis


def test_every_field_of_an_analysis_has_one_section() -> None:
    fields = [name for section in SECTIONS for name in section.fields]
    assert sorted(fields) == sorted(Analysis.__struct_fields__)


def test_keys_are_unique() -> None:
    keys = [section.key for section in SECTIONS]
    assert len(set(keys)) == len(keys)


def test_a_report_goes_from_what_limits_to_what_the_figures_rest_on() -> None:
    """What the first half of a report leaves open the second answers, in this order."""
    keys = [section.key for section in SECTIONS]
    told = "overview step advice roofline totals modules ops kernels ranges host memory".split()
    told += "step-readings waited-for ranks transfers measured machine settings coverage".split()
    assert [key for key in keys if key in told] == told


def test_warnings_stand_at_the_end_and_are_counted_in_front(training_analysis: Analysis) -> None:
    warned = msgspec.structs.replace(training_analysis, warnings=("one is odd", "so is another"))
    page, markdown = render_html(warned), render_markdown(warned)
    assert '<a href="#coverage">2 warnings at the end make figures doubtful.</a>' in page
    assert page.index("So is another.") > page.index('<section id="machine">')
    assert markdown.index("2 warnings at the end") < markdown.index("## Roofline")
    assert markdown.index("So is another") > markdown.index("## Machine")


@pytest.mark.parametrize("fixture", ["training_analysis", "cpu_analysis", "bare_analysis"])
def test_every_renderer_draws_every_block(fixture: str, request: pytest.FixtureRequest) -> None:
    analysis: Analysis = request.getfixturevalue(fixture)
    page, markdown = render_html(analysis), render_markdown(analysis)
    for section in SECTIONS:
        title = section.title(analysis)
        if section.body(analysis):
            assert f'<section id="{section.key}">' in page
            assert not title or f"## {title}" in markdown


def test_a_new_section_is_in_every_report(
    training_analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = Section(
        key="added",
        title=titled("Added"),
        summary=lambda analysis: (Facts((Fact("Memory", "12 GB reserved"),)),),
        body=lambda analysis: (
            Table((Column("Category"), Column("Bytes", "number")), (("12 GB reserved", "1"),)),
        ),
    )
    monkeypatch.setattr("gpuprof.reports.sections.SECTIONS", (*sections.SECTIONS, added))
    console = Console(file=StringIO(), width=100)
    render_summary(training_analysis, console)
    assert isinstance(console.file, StringIO)
    for text in (
        console.file.getvalue(),
        render_markdown(training_analysis),
        render_html(training_analysis),
    ):
        assert "12 GB reserved" in text
    assert '<a href="#added">Added</a>' in render_html(training_analysis)
