"""The HTML page, read as a browser without script would."""

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

import msgspec
import pytest

from gpuprof.reports.html.page import render_html
from gpuprof.reports.html.plotly_bundle import embedded_plotly
from gpuprof.reports.html.templating import embedded_json
from gpuprof.reports.point_rows import MOST_ROWS
from gpuprof.roofline.analysis import ANALYSIS_SCHEMA_VERSION, Analysis, Bottleneck
from gpuprof.roofline.classes import classes
from gpuprof.roofline.step_figures import SplitPart

_VOID = {"meta", "link", "input", "col", "br", "img", "line", "circle", "rect", "path"}


@dataclass
class _Page(HTMLParser):
    """Collects rows, texts, scripts and references; checks that tags are balanced."""

    rows: dict[str, str] = field(default_factory=dict)
    text: str = ""
    references: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    data: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append(tag)
        self.references += [v for k, v in attrs if k in ("src", "href", "action", "data") and v]
        if tag not in _VOID:
            self.open.append((tag, attributes))

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        inside = [tag for tag, _ in self.open]
        if "script" in inside or "style" in inside:
            if ("script", {"type": "application/json", "id": "chart-data"}) in self.open:
                self.data += data
            return
        self.text += data
        for tag, attributes in self.open:
            row = attributes.get("id")
            if tag == "tr" and row:
                self.rows[row] = self.rows.get(row, "") + data


def _page(analysis: Analysis) -> _Page:
    page = _Page()
    page.feed(render_html(analysis))
    page.close()
    assert not page.open
    return page


@pytest.mark.parametrize("fixture", ["training_analysis", "cpu_analysis", "bare_analysis"])
def test_a_page_is_whole_and_refers_to_nothing_outside(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    page = _page(request.getfixturevalue(fixture))
    assert all(reference.startswith(("#", "data:,")) for reference in page.references)
    assert "iframe" not in page.tags
    assert "None" not in page.text
    assert " nan" not in page.text.lower()


def test_the_same_analysis_gives_the_same_bytes(training_analysis: Analysis) -> None:
    assert render_html(training_analysis) == render_html(training_analysis)


def test_every_kernel_and_operator_has_a_row_without_script(training_analysis: Analysis) -> None:
    page = _page(training_analysis)
    for level, points in (("kernel", training_analysis.kernels), ("op", training_analysis.ops)):
        assert [row for row in page.rows if row.startswith(f"{level}-")] == [
            f"{level}-{index}" for index in range(len(points))
        ]
    largest = page.rows["kernel-0"]
    for part in (training_analysis.kernels[0].name, "aten::mm", "TFLOP bf16 matmul", "64.3%"):
        assert part in largest


def test_each_part_of_a_step_has_its_colour(training_analysis: Analysis) -> None:
    split = training_analysis.split
    assert split is not None
    parts = tuple(SplitPart(name, 1_000) for name in classes())
    step_ns = 1_000 * len(parts)
    every = msgspec.structs.replace(split, parts=parts, step_ns=step_ns)
    page = render_html(msgspec.structs.replace(training_analysis, split=every))
    swatches = re.findall(r'class="swatch ([^"]+)"', page)
    assert len(swatches) == len(parts)
    for swatch in swatches:
        assert f".swatch.{swatch} {{" in page
        assert f"--{swatch}: #" in page


def test_the_page_names_where_its_figures_come_from(training_analysis: Analysis) -> None:
    text = " ".join(_page(training_analysis).text.split())
    for part in (
        "optimizer steps (AdamW)",
        "CUDA events",
        "datasheet, dense",
        "torch.mm 8192 x 8192 x 8192",
        "mylib::rope_backward",
        "SW power cap",
        "OMP_NUM_THREADS",
        f"analysis schema {ANALYSIS_SCHEMA_VERSION}",
        "gpuprof 0.1.0",
        "attention is causal and square",
    ):
        assert part in text


def test_chart_points_are_rows_of_the_page(training_analysis: Analysis) -> None:
    page = _page(training_analysis)
    chart = json.loads(page.data)
    assert [level["name"] for level in chart["levels"]] == ["kernel", "op", "range", "step"]
    for level in chart["levels"][:3]:
        assert {point["row"] for point in level["points"]} <= set(page.rows)


def test_hostile_names_are_text_everywhere(training_analysis: Analysis) -> None:
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028"
    hostile = msgspec.structs.replace(
        training_analysis.kernels[0],
        name=attack,
        op=attack,
        detail=attack,
        roof=attack,
        assumptions=(attack,),
        bottleneck=Bottleneck("memory", attack, 5),
    )
    ceilings = tuple(
        msgspec.structs.replace(c, reference=attack, level=attack if c.level else None)
        for c in training_analysis.ceilings
    )
    analysis = msgspec.structs.replace(
        training_analysis,
        title=attack,
        command=(attack,),
        kernels=(hostile,),
        ops=(hostile,),
        ranges=(hostile,),
        ceilings=ceilings,
        warnings=(attack,),
        bottleneck=Bottleneck("memory", attack, None),
        fingerprint=msgspec.structs.replace(
            training_analysis.fingerprint, environment={attack: attack}
        ),
    )
    page, harmless = _page(analysis), _page(training_analysis)
    assert page.tags.count("script") == harmless.tags.count("script")
    assert "img" not in page.tags
    assert page.text.count("<script>alert(1)</script>") > 10
    assert not set("<>&") & set(page.data)
    assert json.loads(page.data)["ceilings"][0]["name"] == attack


def test_json_in_the_page_cannot_end_its_element() -> None:
    class Sample(msgspec.Struct):
        text: str

    text = embedded_json(Sample("</script><!--\u2028&"))
    assert text == '{"text":"\\u003c/script\\u003e\\u003c!--\\u2028\\u0026"}'
    assert json.loads(text) == {"text": "</script><!--\u2028&"}


def test_beyond_the_largest_rows_there_is_one_for_the_others(training_analysis: Analysis) -> None:
    point = training_analysis.kernels[0]
    many = tuple(
        msgspec.structs.replace(point, device_fraction=1 / (MOST_ROWS + 120))
        for _ in range(MOST_ROWS + 120)
    )
    page = _page(msgspec.structs.replace(training_analysis, kernels=many, ops=(), ranges=()))
    assert sum(row.startswith("kernel-") for row in page.rows) == MOST_ROWS
    text = " ".join(page.text.split())
    assert "other: 120 smaller ones" in text
    assert f"{120 / (MOST_ROWS + 120):.1%}" in text
    level = json.loads(page.data)["levels"][0]
    assert len(level["points"]) == MOST_ROWS
    assert f"120 of {MOST_ROWS + 120} kernels" in level["note"]
    assert "120 smaller than those with a row" in level["note"]


def test_a_share_over_the_roof_is_marked(training_analysis: Analysis) -> None:
    over = msgspec.structs.replace(training_analysis.kernels[0], roof_fraction=1.2)
    page = _page(msgspec.structs.replace(training_analysis, kernels=(over,)))
    assert "120%!" in page.rows["kernel-0"]
    assert "peak or count wrong, or data in cache" in page.rows["kernel-0"]


def test_without_ceilings_the_page_says_so_and_keeps_its_tables(cpu_analysis: Analysis) -> None:
    page = _page(cpu_analysis)
    assert "No ceiling is known for this device" in page.text
    assert "Leaf operators" in page.text
    assert "kernel-0" in page.rows


def test_a_leaf_operator_is_not_said_to_be_launched_by_itself(cpu_analysis: Analysis) -> None:
    row = _page(cpu_analysis).rows["kernel-0"]
    assert "backward · [[4096" in row
    assert "aten::mm ·" not in row
    assert "Operator" not in row


def test_nothing_recorded_makes_a_small_page_without_a_chart(bare_analysis: Analysis) -> None:
    page = _page(bare_analysis)
    assert page.data == ""
    assert "No device work was recorded" in page.text
    assert "ended with an exception" in page.text
    assert len(render_html(bare_analysis)) < 100_000


def test_the_shell_around_plotly_is_small(training_analysis: Analysis) -> None:
    html = render_html(training_analysis)
    assert html.count(embedded_plotly()) == 1
    assert len(html) - len(embedded_plotly()) < 300_000


def test_a_page_of_many_long_names_can_be_mailed(training_analysis: Analysis) -> None:
    # 20,000 kernels, operators and ranges with names as long as C++ templates make them.
    point = training_analysis.kernels[0]
    many = tuple(
        msgspec.structs.replace(
            point,
            name=f"void at::native::kernel_{index}<{'std::array<float, 4ul>, ' * 30}>(int)",
            device_fraction=1 / 20_000,
        )
        for index in range(20_000)
    )
    analysis = msgspec.structs.replace(training_analysis, kernels=many, ops=many, ranges=many)
    assert len(render_html(analysis).encode()) < 6_000_000


def test_work_without_a_model_is_no_work_above_its_roof(training_analysis: Analysis) -> None:
    split = training_analysis.split
    assert split is not None
    # All that is at its roof, and as much again that nobody knows.
    at_roof_ns = split.busy_ns // 2
    half = msgspec.structs.replace(
        split,
        parts=(
            SplitPart("roof", at_roof_ns),
            SplitPart("unknown", split.busy_ns - at_roof_ns),
            *split.idle_parts,
        ),
    )
    text = render_html(msgspec.structs.replace(training_analysis, split=half))
    tile = text[text.index("Device work at its roof") :][:600]
    assert "100%" in tile
    assert "without the 50.0% that have no model" in tile
