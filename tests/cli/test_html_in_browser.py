"""The HTML page in a real browser: headless Chromium, with no network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from browser import needs_browser
from chromium import Chromium
from made_up_pages import gate_result

from gpuprof.reports.comparison import page as comparison_page
from gpuprof.reports.gate import page as gate_page
from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analysis import Analysis, Bottleneck
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.comparison.result import Comparison
from gpuprof.roofline.gate.result import GateResult

pytestmark = needs_browser

_HELPERS = """
const rows = (id) => [...document.querySelectorAll(`#${id} tbody tr`)];
const shown = (id) => rows(id).filter((row) => !row.hidden).map((row) => row.id);
const column = (id, index) => rows(id).map((row) => row.cells[index].dataset.value);
const texts = (selector) =>
  [...document.querySelectorAll(selector)].map((element) => element.textContent);
const clickHead = (id, index) =>
  document.querySelectorAll(`#${id} thead button`)[index].click();
const type = (id, text) => {
  const input = document.querySelector(`input[data-table="${id}"]`);
  input.value = text;
  input.dispatchEvent(new Event("input"));
};
const press = (key) =>
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const later = () => new Promise((resolve) => setTimeout(resolve, 300));
const hoverFirstPoint = async () => {
  const chart = document.getElementById("chart");
  chart.scrollIntoView();
  await later();
  const box = chart.querySelector(".points path").getBoundingClientRect();
  const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true };
  const area = chart.querySelector(".nsewdrag");
  area.dispatchEvent(new MouseEvent("mousemove", at));
  await later();
};
"""

Shown = Analysis | Comparison | GateResult
Probe = Callable[[Shown, str], Any]


@pytest.fixture
def probe(browser: Chromium, tmp_path: Path) -> Probe:
    """Renders what is shown and evaluates the body of an async function in the page."""

    def run(shown: Shown, body: str) -> Any:
        if isinstance(shown, GateResult):
            text = gate_page.render_html(shown)
        elif isinstance(shown, Comparison):
            text = comparison_page.render_html(shown)
        else:
            text = render_html(shown)
        page = tmp_path / "page.html"
        page.write_text(text, encoding="utf-8")
        browser.open(page)
        return browser.evaluate(f"{_HELPERS}\n{body}")

    return run


def test_the_roofline_is_drawn_without_network(probe: Probe, training_analysis: Analysis) -> None:
    answer = probe(
        training_analysis,
        """
        await later();
        return {
          points: document.querySelectorAll("#chart .points path").length,
          lines: document.querySelectorAll("#chart .lines path").length,
          labels: texts("#chart .annotation-text"),
          expected: JSON.parse(texts("#chart-data")[0]).levels[0].points.length,
          loaded: performance.getEntriesByType("resource").map((entry) => entry.name)
            .filter((name) => /^(https?|wss?):/.test(name)),
        };
        """,
    )
    assert answer["points"] == answer["expected"] > 10
    assert answer["lines"] >= 6
    assert any("bf16 tensor 989 TFLOP/s" in label for label in answer["labels"])
    assert answer["loaded"] == []


def test_levels_and_ceilings_can_be_switched(probe: Probe, training_analysis: Analysis) -> None:
    answer = probe(
        training_analysis,
        """
        const points = () => document.querySelectorAll("#chart .points path").length;
        const lines = () => document.querySelectorAll("#chart .lines path").length;
        const counts = [points()];
        for (const level of ["range", "step"]) {
          document.querySelector(`[data-level="${level}"]`).click();
          await later();
          counts.push(points());
        }
        const before = lines();
        document.getElementById("all-ceilings").click();
        await later();
        return { counts, added: lines() - before, pressed: texts('[aria-pressed="true"]') };
        """,
    )
    assert answer["counts"][1:] == [3, 1]
    assert answer["added"] > 0
    assert answer["pressed"] == ["Step"]


def test_a_point_shows_all_its_figures_under_the_pointer(
    probe: Probe, training_analysis: Analysis
) -> None:
    text = probe(
        training_analysis,
        """
        await hoverFirstPoint();
        const card = document.getElementById("card");
        return card.hidden ? "" : card.textContent;
        """,
    )
    for part in ("Calls", "Device time", "TFLOP bf16 matmul", "FLOP/byte", "read", "Roof", "Class"):
        assert part in text


def test_columns_sort_both_ways_with_unknown_last(
    probe: Probe, training_analysis: Analysis
) -> None:
    answer = probe(
        training_analysis,
        """
        clickHead("kernel-table", 4);
        const down = column("kernel-table", 4);
        clickHead("kernel-table", 4);
        const up = column("kernel-table", 4);
        const order = document.querySelectorAll("#kernel-table th")[4].getAttribute("aria-sort");
        clickHead("kernel-table", 0);
        return { down, up, order, names: texts("#kernel-table .title") };
        """,
    )
    known = [float(value) for value in answer["down"] if value]
    assert known == sorted(known, reverse=True)
    assert answer["down"][-1] == answer["up"][-1] == ""
    assert [float(value) for value in answer["up"] if value] == known[::-1]
    assert answer["order"] == "ascending"
    assert answer["names"][0].strip().startswith("at::native")


def test_the_filter_finds_rows_by_all_words(probe: Probe, training_analysis: Analysis) -> None:
    answer = probe(
        training_analysis,
        """
        type("kernel-table", "aten::mm FORWARD");
        const found = shown("kernel-table");
        const said = document.querySelector("#kernels output").textContent;
        type("kernel-table", "");
        return { found, said, all: shown("kernel-table").length };
        """,
    )
    expected = [
        f"kernel-{index}"
        for index, point in enumerate(training_analysis.kernels)
        if point.op == "aten::mm" and point.phase == "forward"
    ]
    assert answer["found"] == expected
    assert answer["said"].startswith(f"{len(expected)} of {len(training_analysis.kernels)} rows")
    assert answer["all"] == len(training_analysis.kernels)


def test_the_slash_key_goes_to_a_filter(probe: Probe, training_analysis: Analysis) -> None:
    assert probe(
        training_analysis,
        """
        scrollTo(0, 0);
        press("/");
        return document.activeElement.dataset.table ?? "";
        """,
    )


def test_hostile_names_run_nothing_anywhere(probe: Probe, training_analysis: Analysis) -> None:
    attack = "<script>alert(1)</script><img src=x onerror=\"document.title='owned'\">"
    hostile = msgspec.structs.replace(
        training_analysis.kernels[0],
        name=attack,
        op=attack,
        detail=attack,
        assumptions=(attack,),
        bottleneck=Bottleneck("compute", attack, 5),
    )
    ceilings = tuple(
        msgspec.structs.replace(c, level=attack if c.level else None, reference=attack)
        for c in training_analysis.ceilings
    )
    analysis = msgspec.structs.replace(
        training_analysis,
        title=attack,
        kernels=(hostile,),
        ops=(hostile,),
        ranges=(msgspec.structs.replace(hostile, level="range"),),
        ceilings=ceilings,
        warnings=(attack,),
    )
    answer = probe(
        analysis,
        """
        await hoverFirstPoint();
        document.getElementById("all-ceilings").click();
        await later();
        return {
          title: document.title,
          images: document.images.length,
          scripts: document.scripts.length,
          card: document.getElementById("card").textContent,
          label: texts("#chart .annotation-text"),
          range: document.getElementById("range-0").textContent,
        };
        """,
    )
    assert answer["title"].startswith("<script>alert(1)</script>")
    assert answer["images"] == 0
    # The data, plotly, what unpacks it, and the page's own.
    assert answer["scripts"] == 4
    for text in (answer["card"], answer["range"], *answer["label"][:1]):
        assert "<script>alert(1)</script>" in text


@pytest.mark.parametrize("fixture", ["cpu_analysis", "bare_analysis"])
def test_pages_with_little_in_them_raise_no_error(
    probe: Probe, fixture: str, request: pytest.FixtureRequest
) -> None:
    analysis = request.getfixturevalue(fixture)
    points = probe(
        analysis,
        """
        await later();
        return document.querySelectorAll("#chart .points path").length;
        """,
    )
    assert (points > 0) == bool(analysis.kernels)


def test_changes_can_be_sorted_and_filtered(probe: Probe, training_analysis: Analysis) -> None:
    kernels = [
        msgspec.structs.replace(kernel, device_ns=round(kernel.device_ns * (1 + 0.1 * (index % 3))))
        for index, kernel in enumerate(training_analysis.kernels)
        if kernel.name != "triton_rope_backward"
    ]
    comparison = compare(
        training_analysis, msgspec.structs.replace(training_analysis, kernels=tuple(kernels))
    )

    answer = probe(
        comparison,
        """
        const table = "kernel-table";
        const wide = document.documentElement.scrollWidth > window.innerWidth;
        const number = shown(table).length;
        clickHead(table, 1);
        const slowest = column(table, 1).map(Number);
        type(table, "gone");
        return { wide, number, slowest, gone: shown(table).length, count: texts("output") };
        """,
    )

    assert not answer["wide"]
    assert answer["number"] == len(comparison.kernels)
    assert answer["slowest"] == sorted(answer["slowest"], reverse=True)
    assert answer["gone"] == 1
    assert answer["count"] == [f"1 of {len(comparison.kernels)} rows"]


def test_the_gates_page_draws_each_pair_and_filters_its_verdicts(probe: Probe) -> None:
    hostile = "<img src=x onerror=document.title='broken'>"
    result = gate_result({"train": 1.2, hostile: 1.0})

    answer = probe(
        result,
        """
        await later();
        const dots = document.querySelectorAll("#differences .points path").length;
        const labels = texts("#differences .ytick text");
        const limits = document.querySelectorAll("#differences .shapelayer path").length;
        type("verdict-table", "regressed");
        return { dots, labels, limits, title: document.title,
          left: rows("verdict-table").filter((row) => !row.hidden).length };
        """,
    )

    # Five pairs and a mean of each.
    assert answer["dots"] == 2 * 6
    assert answer["limits"] == 2
    assert answer["labels"][0] == "train"
    assert answer["labels"][1].startswith("<img src=x")
    assert answer["title"].startswith("REGRESSED: 2 benchmarks")
    assert answer["left"] == 1
