"""What the page embeds and draws of a time line."""

from functools import cache
from pathlib import Path

import msgspec
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto, storage
from gpuprof.reports.blocks import Paragraph, Table, TimelinePlot
from gpuprof.reports.html.fill_patterns import pattern_of
from gpuprof.reports.html.page import render_html
from gpuprof.reports.html.timeline_data import make_timeline
from gpuprof.reports.html.timeline_drawing import draw_timeline
from gpuprof.reports.sections.timeline import SECTION
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.classes import classes
from gpuprof.roofline.timeline.find import MOST_LABELS, MOST_PIECES
from gpuprof.roofline.timeline_figures import Timeline, TimelineLabel, TimelineLane, TimelineStep
from gpuprof.roofline.work.attribution import attribute

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDINGS = ("captures/h200_llama_block", "captures/h100_cuda_graph", "kineto/cpu-only.json")


@cache
def analysed(name: str) -> Analysis:
    path = DATA / name
    return analyze(attribute(storage.load(path) if path.is_dir() else kineto.read(path)))


def block_of(analysis: Analysis) -> TimelinePlot:
    (block,) = SECTION.page_only(analysis)
    assert isinstance(block, TimelinePlot)
    return block


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_drawing_has_few_bars_and_all_inside(name: str) -> None:
    analysis = analysed(name)
    drawing = draw_timeline(block_of(analysis), analysis.kernels)
    assert 0 < len(drawing.bars) <= 400
    for bar in drawing.bars:
        assert drawing.left - 0.1 <= bar.x <= bar.x + bar.width <= drawing.right + 1
        assert drawing.top <= bar.y <= drawing.bottom
        assert bar.text
    assert len({name.y for name in drawing.names}) == len(drawing.names)


@pytest.mark.parametrize("name", RECORDINGS)
def test_bars_cover_what_the_lane_is_busy(name: str) -> None:
    analysis = analysed(name)
    block = block_of(analysis)
    drawing = draw_timeline(block, analysis.kernels)
    step = block.timeline.steps[0]
    number = next(at for at, lane in enumerate(step.lanes) if lane.kind == "stream")
    heights = sorted({bar.y for bar in drawing.bars})
    own = [bar for bar in drawing.bars if bar.y == heights[number]]
    pixel_ns = (step.lead_ns + step.length_ns) / (drawing.right - drawing.left)
    lane = step.lanes[number]
    for start, length in zip(lane.starts_ns, lane.lengths_ns, strict=True):
        middle = drawing.left + (start + length / 2 + step.lead_ns) / pixel_ns
        assert any(bar.x - 1 <= middle <= bar.x + bar.width + 1 for bar in own)


def test_pieces_lead_to_rows_that_are_there() -> None:
    analysis = analysed("captures/h200_llama_block")
    found = make_timeline(block_of(analysis), analysis)
    page = render_html(analysis)
    rows = {label.row for label in found.labels if label.row}
    assert len(rows) > 20
    assert all(f'<tr id="{row}"' in page for row in rows)
    product = next(label for label in found.labels if label.operator == "aten::mm" and label.row)
    point = next(each for each in analysis.kernels if each.name.startswith(product.name))
    assert product.look == point.bottleneck.kind
    assert product.roof == point.roof


def test_no_two_classes_have_one_pattern() -> None:
    drawn = [row for row in classes().values() if row.mark]
    patterns = [pattern_of(row) for row in drawn]
    assert len(set(patterns)) == len(drawn) > 20


def test_names_of_a_foreign_capture_are_text(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1_000)
    build.kernel(5, 100, 400, "</script><b>\u2028\x1b[31m")
    build.range("</figure><script>", 10, 20)
    page = render_html(analyze(attribute(build.build())))
    assert "</script><b>" not in page
    assert "</figure><script>" not in page
    assert "\u2028" not in page
    assert "\x1b" not in page


def test_the_table_has_the_longest_of_each_name_and_the_longest_waits(
    build: CaptureBuilder,
) -> None:
    build.step("profiled", 0, 100_000)
    for start, length, name in ((10_000, 500, "a"), (20_000, 900, "a"), (40_000, 700, "b")):
        build.kernel(start - 100, start, start + length, name)
    _, table = SECTION.body(analyze(attribute(build.build())))
    assert isinstance(table, Table)
    assert [(row[0], row[2], row[3]) for row in table.rows[:2]] == [
        ("a", "20.0 µs", "900 ns"),
        ("b", "40.0 µs", "700 ns"),
    ]
    waits = table.rows[2]
    assert waits[1] == "no device work"
    assert waits[3] == "59.3 µs"


def test_an_analysis_of_before_says_how_to_get_one() -> None:
    analysis = msgspec.structs.replace(analysed("captures/h200_llama_block"), timeline=None)
    assert SECTION.page_only(analysis) == ()
    (said,) = SECTION.body(analysis)
    assert isinstance(said, Paragraph)
    assert "gpuprof analyze" in said.text
    empty = msgspec.structs.replace(analysis, kernels=())
    assert SECTION.body(empty) == ()


def test_the_largest_time_line_leaves_room_in_a_page() -> None:
    analysis = analysed("kineto/cpu-only.json")
    labels = tuple(
        TimelineLabel(
            name=f"void library::kernel_{number}<" + "tensor, " * 500 + ">",
            kind="kernel",
            operator="aten::some_operator_of_a_library",
            module=f"model.layers.{number}.attention.projection",
            place=f"project/models/transformer.py:{number}",
            detail="argument " * 100,
        )
        for number in range(MOST_LABELS)
    )
    pieces = range(MOST_PIECES)
    lane = TimelineLane(
        kind="stream",
        starts_ns=tuple(at * 1_000_003 for at in pieces),
        lengths_ns=tuple(900_000 + at for at in pieces),
        labels=tuple(at % MOST_LABELS for at in pieces),
        counts=tuple(7 + at for at in pieces),
        busy_ns=tuple(800_000 + at for at in pieces),
        launched_ns=tuple(at * 1_000_003 - 200_000 for at in pieces),
        launched_from=tuple(0 for _ in pieces),
        waited_ns=tuple(at for at in pieces),
    )
    step = TimelineStep(role="typical", index=1, start_ns=0, length_ns=10**10, lanes=(lane,))
    largest = Timeline(definition="timed", of_steps=2, labels=labels, steps=(step, step))
    found = make_timeline(TimelinePlot(largest, 0, on_cpu=False), analysis)
    # What all else takes in a page of 6 MB is 3.5 MB at most.
    assert len(msgspec.json.encode(found)) < 3_400_000
