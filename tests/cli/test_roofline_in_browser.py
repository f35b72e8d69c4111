"""The roofline of little and odd work, in headless Chromium."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from browser import needs_browser
from chromium import Chromium

from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.machine.ceilings import Ceiling
from gpuprof.roofline.spread_figures import CallSpread

pytestmark = needs_browser

# What stands in the plot; everything must be a number that lies inside of it.
_DRAWN = """
const chart = document.getElementById("chart");
const area = chart.querySelector(".nsewdrag").getBoundingClientRect();
const points = [...chart.querySelectorAll(".points path")].map((path) => {
  const box = path.getBoundingClientRect();
  return [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
});
return {
  points: points.length,
  inside: points.every(([x, y]) =>
    x > area.left && x < area.right && y > area.top && y < area.bottom),
  lines: chart.querySelectorAll(".lines path").length,
  ridges: (chart.layout.annotations ?? []).filter(({ name }) => name === "ridge")
    .map(({ text }) => text),
  bars: [...chart.querySelectorAll(".errorbar path")]
    .filter((bar) => bar.getBBox().height > 1).length,
  ticks: [chart.querySelectorAll(".xtick").length, chart.querySelectorAll(".ytick").length],
  ranges: [chart.layout.xaxis.range, chart.layout.yaxis.range],
  note: document.getElementById("chart-note").textContent,
};
"""


def only(analysis: Analysis, kernels: tuple[RooflinePoint, ...], **others: Any) -> Analysis:
    """`analysis` with no other work than `kernels`."""
    return msgspec.structs.replace(
        analysis, kernels=kernels, ops=(), ranges=(), step=None, modules=None, **others
    )


def spread_of(low: int, high: int) -> CallSpread:
    return CallSpread(
        calls=3,
        shortest_ns=low,
        lower_quartile_ns=low,
        median_ns=low,
        upper_quartile_ns=high,
        longest_ns=high,
    )


def one(point: RooflinePoint) -> RooflinePoint:
    return msgspec.structs.replace(point, device_fraction=1.0, spread=None)


def spread_out(point: RooflinePoint) -> RooflinePoint:
    mean = point.device_ns // 3
    return msgspec.structs.replace(point, device_ns=3 * mean, spread=spread_of(mean // 2, 2 * mean))


def without_bytes(point: RooflinePoint) -> RooflinePoint:
    return msgspec.structs.replace(
        point, bytes_read=0, bytes_written=0, arithmetic_intensity=None, bytes_per_s=0.0
    )


def without_flops(point: RooflinePoint) -> RooflinePoint:
    return msgspec.structs.replace(point, flops=None, arithmetic_intensity=None, flops_per_s=None)


@pytest.fixture
def drawn(browser: Chromium, tmp_path: Path) -> Callable[[Analysis], Any]:
    def run(analysis: Analysis) -> Any:
        page = tmp_path / "page.html"
        page.write_text(render_html(analysis), encoding="utf-8")
        browser.open(page)
        return browser.evaluate(_DRAWN)

    return run


def test_one_point_stands_in_axes_with_ticks(
    drawn: Callable[[Analysis], Any], training_analysis: Analysis
) -> None:
    first = training_analysis.kernels[0]
    found = drawn(only(training_analysis, (one(first),)))
    assert (found["points"], found["inside"], found["bars"]) == (1, True, 0)
    # 989 TFLOP/s over 3.35 TB/s, and what fp32 has.
    assert "295 FLOP/byte" in found["ridges"]
    # With a second level of memory each ridge says of which it is.
    l2 = Ceiling(kind="memory", rate=3.35e13, source="datasheet", reference="", level="L2")
    two = drawn(only(training_analysis, (one(first),), ceilings=(*training_analysis.ceilings, l2)))
    assert {"DRAM 295 FLOP/byte", "L2 29.5 FLOP/byte"} <= set(two["ridges"])
    # The same without any ceiling: nothing but the point gives the axes their length.
    bare = drawn(only(training_analysis, (one(first),), ceilings=(), roof_source=None))
    assert (bare["points"], bare["inside"], bare["lines"]) == (1, True, 0)
    for figures in (found, bare):
        assert all(high - low > 0.5 for low, high in figures["ranges"])
        assert min(figures["ticks"]) >= 2


def test_calls_that_differ_have_a_bar_and_points_at_one_place_are_counted(
    drawn: Callable[[Analysis], Any], browser: Chromium, training_analysis: Analysis
) -> None:
    first, second = training_analysis.kernels[:2]
    same = tuple(
        msgspec.structs.replace(first, name=f"kernel_{index}", device_fraction=0.1, spread=None)
        for index in range(5)
    )
    found = drawn(only(training_analysis, (*same, spread_out(one(second)))))
    assert (found["points"], found["inside"], found["bars"]) == (6, True, 1)
    assert "Bars reach from the slowest to the fastest call." in found["note"]
    card = browser.evaluate(
        """
        const chart = document.getElementById("chart");
        const row = [...document.querySelectorAll("#kernel-table tbody tr")]
          .find((each) => each.dataset.key === "kernel_2").id;
        chart.emit("plotly_hover", {
          points: [{ customdata: row }], event: { clientX: 10, clientY: 10 },
        });
        return document.getElementById("card").textContent;
        """
    )
    assert "4 more points lie here." in card


def test_work_without_a_place_is_said_and_the_others_are_drawn(
    drawn: Callable[[Analysis], Any], training_analysis: Analysis
) -> None:
    first, second, third = training_analysis.kernels[:3]
    kernels = (without_bytes(first), without_flops(second), third)
    found = drawn(only(training_analysis, kernels))
    assert (found["points"], found["inside"]) == (1, True)
    assert "Not in this plot: 2 of 3 kernels" in found["note"]
    assert "1 that move no bytes, 1 without a FLOP or byte model" in found["note"]


def test_without_any_place_the_page_says_so_and_its_tables_work(
    browser: Chromium, tmp_path: Path, training_analysis: Analysis
) -> None:
    page = tmp_path / "page.html"
    analysis = only(training_analysis, (without_flops(training_analysis.kernels[0]),))
    page.write_text(render_html(analysis), encoding="utf-8")
    browser.open(page, fragment="#kernel-0")
    said, selected = browser.evaluate(
        """
        return [document.querySelector("#roofline .absent").textContent,
          [...document.querySelectorAll(".selected")].map((row) => row.id)];
        """
    )
    assert said.startswith("No point has both a FLOP and a byte count")
    assert selected == ["kernel-0"]
