"""What is selected in one place of a page is selected in all, in headless Chromium."""

from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser
from chromium import Chromium

from gpuprof.profiler.captures import load_analysis
from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analysis import Analysis

pytestmark = needs_browser

CAPTURES = Path(__file__).parents[1] / "data" / "captures"

_STATE = """
const frames = async () => {
  for (let count = 0; count < 3; count += 1) await new Promise(requestAnimationFrame);
};
const ids = (selector) => [...document.querySelectorAll(selector)].map((row) => row.id);
const state = async () => {
  await frames();
  const rings = document.getElementById("chart").data.filter((trace) => trace.name === "selected");
  const focused = document.activeElement.closest("tr");
  return {
    selected: ids(".selected"), related: ids(".related"), hash: location.hash,
    rings: rings.map((trace) => trace.x.length), focused: focused?.id ?? "",
    visible: ids(".selected").every((id) => {
      const box = document.getElementById(id).getBoundingClientRect();
      return box.top >= 0 && box.top < innerHeight;
    }),
  };
};
document.documentElement.style.scrollBehavior = "auto";
"""


@pytest.fixture(scope="module")
def block() -> Analysis:
    return load_analysis(CAPTURES / "h200_llama_block")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, block: Analysis) -> Path:
    found = tmp_path_factory.mktemp("selection") / "block.html"
    found.write_text(render_html(block), encoding="utf-8")
    return found


def after(browser: Chromium, body: str) -> Any:
    return browser.evaluate(f"{_STATE}\n{body}\nreturn state();")


def called_by(block: Analysis, kernel: int) -> set[str]:
    """The rows of the operators that launched a kernel, by a search of their own."""
    point = block.kernels[kernel]
    return {
        f"op-{index}"
        for index, op in enumerate(block.ops)
        if (op.name, op.detail, op.phase) == (point.op, point.op_detail, point.phase)
        and (not point.module or op.module == point.module)
    }


def test_a_click_on_a_point_selects_its_row_and_what_it_belongs_to(
    browser: Chromium, page: Path, block: Analysis
) -> None:
    browser.open(page)
    found = after(
        browser,
        """
        const chart = document.getElementById("chart");
        const trace = chart.data.findIndex((one) => one.customdata?.includes("kernel-0"));
        const point = { customdata: "kernel-0", curveNumber: trace };
        chart.emit("plotly_click", { points: [point] });
        """,
    )
    assert found["selected"] == ["kernel-0"]
    assert called_by(block, 0)
    assert called_by(block, 0) <= set(found["related"])
    assert found["hash"] == "#kernel-0"
    assert found["rings"][1] == 1
    assert found["focused"] == "kernel-0"
    assert found["visible"]


def test_a_row_selects_its_points_and_escape_takes_it_back(
    browser: Chromium, page: Path, block: Analysis
) -> None:
    browser.open(page)
    before, there = browser.evaluate(
        f"""{_STATE}
        document.getElementById("op-0").scrollIntoView({{ block: "center" }});
        await frames();
        const before = scrollY;
        document.querySelector("#op-1 td.share").click();
        await frames();
        return [before, scrollY];
        """
    )
    # It is in view: nothing moves.
    assert before == there
    found = after(browser, 'document.querySelector("#op-0 td.share").click();')
    launched = {
        f"kernel-{index}"
        for index in range(len(block.kernels))
        if "op-0" in called_by(block, index)
    }
    assert found["selected"] == ["op-0"]
    assert launched
    assert launched <= set(found["related"])
    # The plot shows kernels: those of the operator have a ring.
    assert found["rings"] == [len(launched), 0]
    browser.press("Escape")
    found = after(browser, "")
    assert (found["selected"], found["related"], found["hash"]) == ([], [], "")
    assert found["rings"] == [0, 0]


def test_a_name_selects_all_that_bear_it_and_a_link_leads_to_it(
    browser: Chromium, page: Path, block: Analysis
) -> None:
    names = [op.name for op in block.ops]
    several = next(name for name in names if names.count(name) > 1)
    browser.open(page)
    found = after(
        browser,
        f"""
        const detail = {{ kind: "operator", key: "{several}" }};
        document.dispatchEvent(new CustomEvent("gpuprof:select", {{ detail }}));
        """,
    )
    expected = [f"op-{index}" for index, name in enumerate(names) if name == several]
    assert found["selected"] == expected

    browser.open(page, fragment=found["hash"])
    assert after(browser, "")["selected"] == expected
    browser.open(page, fragment="#op-1")
    found = after(browser, "")
    assert found["selected"] == ["op-1"]
    assert found["visible"]


def test_keys_reach_filters_rows_and_their_own_list(browser: Chromium, page: Path) -> None:
    browser.open(page)
    # The first stop leads past the head of the page.
    browser.press("Tab")
    assert browser.evaluate("return document.activeElement.className") == "skip"
    browser.press("/")
    assert browser.evaluate("return document.activeElement.type") == "search"
    browser.evaluate("document.querySelector('input[data-table=kernel-table]').focus()")
    seen = []
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "End", "Home", "Enter"):
        browser.press(key)
        seen.append(after(browser, "")["focused"])
    # The last one of those that are not folded away.
    assert seen == ["kernel-0", "kernel-1", "kernel-0", "kernel-24", "kernel-0", "kernel-0"]
    assert after(browser, "")["selected"] == ["kernel-0"]

    is_open = "return document.getElementById('keys').open"
    browser.press("?")
    assert browser.evaluate(is_open)
    # It closes the list, and leaves the selection.
    browser.press("Escape")
    assert not browser.evaluate(is_open)
    assert after(browser, "")["selected"] == ["kernel-0"]
