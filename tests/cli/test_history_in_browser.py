"""The page of a history in headless Chromium, with no network: its plots are drawn."""

from pathlib import Path

from browser import needs_browser
from chromium import Chromium

from gpuprof.reports.history.page import render_history
from gpuprof.roofline.gate.history import ChangePoint, HistorySeries, Point

pytestmark = needs_browser


def test_each_series_is_drawn_with_its_points_and_its_change(
    browser: Chromium, tmp_path: Path
) -> None:
    series = HistorySeries(
        benchmark="train <i>",
        metric="time",
        unit="ns",
        fingerprint="f",
        device="H100",
        points=tuple(
            Point(
                measured_ns=(1767000000 + index * 86400) * 10**9,
                commit="abc",
                value=(3e6, 4e6)[index > 3],
                low=2.9e6,
                high=4.1e6,
                processes=5,
            )
            for index in range(8)
        ),
    )
    page = tmp_path / "history.html"
    page.write_text(render_history([series], [[ChangePoint(index=4, change=0.33, p_value=0)]]))

    browser.open(page)
    drawn = browser.evaluate(
        """
        const all = (selector) => [...document.querySelectorAll(selector)];
        return {
          points: all(".point").length,
          texts: all("text").map((text) => text.textContent),
          lines: all(".shapelayer path").length,
        };
        """
    )
    assert drawn["points"] == 8
    assert "+33.0 %" in drawn["texts"]
    assert drawn["lines"] == 1
