"""The page of a history in headless Chromium, with no network: its plots are drawn."""

from pathlib import Path

from browser import needs_browser
from chromium import Chromium
from made_up_pages import history_series

from gpuprof.reports.history.page import render_history
from gpuprof.roofline.gate.history import ChangePoint

pytestmark = needs_browser


def test_each_series_is_drawn_with_its_points_and_its_change(
    browser: Chromium, tmp_path: Path
) -> None:
    series = history_series("train <i>")
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
