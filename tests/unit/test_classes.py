"""The table of bottleneck classes: one row is all that a class needs."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.classes import BottleneckClass, bottleneck_class, classes
from gpuprof.roofline.points.bottleneck import classify_step
from gpuprof.roofline.step_figures import SplitPart, StepSplit

MARKS = {
    "circle",
    "square",
    "triangle-up",
    "triangle-down",
    "triangle-left",
    "triangle-right",
    "cross",
    "hourglass",
    "bowtie",
    "diamond",
    "x",
    "pentagon",
    "hexagon",
    "star",
}
PAGING = BottleneckClass(
    name="paging",
    meaning="its pages are not resident",
    part="below the roof, paging",
    loss="work waits for pages",
    has_roof=True,
    mark="hexagon",
    fill="solid",
    light="#123456",
    dark="#654321",
    terminal="cyan",
)


@pytest.fixture
def with_paging(monkeypatch: pytest.MonkeyPatch) -> BottleneckClass:
    """A class that a row of the table adds."""
    monkeypatch.setitem(classes(), PAGING.name, PAGING)
    return PAGING


def test_every_row_can_be_drawn_and_said() -> None:
    for row in classes().values():
        assert row.part, row.name
        assert row.mark in MARKS | {""}, row.name
    assert not classes()["roof"].loss
    idle = [row.name for row in classes().values() if row.idle]
    assert idle == [
        "other device",
        "queued",
        "synchronisation",
        "data loader",
        "blocking copy",
        "allocator",
        "compilation",
        "garbage collection",
        "host work",
        "unexplained",
        "launch",
        "outside",
    ]


def test_a_class_without_a_row_is_an_error_and_not_time_without_a_model() -> None:
    with pytest.raises(ValueError, match="'paging' is no bottleneck class"):
        bottleneck_class("paging")
    with pytest.raises(ValueError, match="'paging' is no bottleneck class"):
        StepSplit(step_ns=1, basis="timed", parts=(SplitPart("paging", 1),))


def test_parts_that_do_not_add_up_are_refused_when_made_and_when_read() -> None:
    with pytest.raises(ValueError, match="add up to 3 ns of a step of 4 ns"):
        StepSplit(step_ns=4, basis="timed", parts=(SplitPart("roof", 3),))
    stored = {"step_ns": 4, "basis": "timed", "parts": [{"kind": "roof", "nanoseconds": 3}]}
    with pytest.raises(msgspec.ValidationError, match="add up"):
        msgspec.convert(stored, type=StepSplit)


def test_a_new_row_reaches_the_verdict_and_every_report(
    training_analysis: Analysis, with_paging: BottleneckClass
) -> None:
    split = training_analysis.split
    assert split is not None
    larger = StepSplit(
        step_ns=split.step_ns + 9_000_000,
        basis=split.basis,
        parts=(*split.parts, SplitPart("paging", 9_000_000)),
    )
    verdict = classify_step(larger, "")
    assert (verdict.kind, verdict.gain_ns) == ("paging", 9_000_000)
    assert verdict.evidence.endswith(with_paging.loss)
    analysis = msgspec.structs.replace(training_analysis, split=larger, bottleneck=verdict)
    console = Console(file=StringIO(), width=120)
    render_summary(analysis, console)
    assert isinstance(console.file, StringIO)
    for text in (console.file.getvalue(), render_markdown(analysis), render_html(analysis)):
        assert with_paging.part in text
        assert "9.00 ms" in text
    page = render_html(analysis)
    assert "--class-paging: #123456;" in page
    assert f"<b>paging</b> {with_paging.meaning}" in page
    assert ".rung .class-paging, .swatch.class-paging" in page
