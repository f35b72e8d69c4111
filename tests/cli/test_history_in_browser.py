"""The page of a history in headless Chromium, with no network: its plots are drawn."""

import re
import subprocess
from pathlib import Path

from browser import CHROMIUM, needs_browser

from gpuprof.reports.history.page import render_history
from gpuprof.roofline.gate.history import ChangePoint, HistorySeries, Point

pytestmark = needs_browser


def test_each_series_is_drawn_with_its_points_and_its_change(tmp_path: Path) -> None:
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

    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
            *("--no-first-run", "--disable-background-networking", "--disable-sync"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=10000"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    assert len(re.findall(r'<path class="point"', done.stdout)) == 8
    assert "+33.0 %" in re.findall(r"<text[^>]*>([^<]*)</text>", done.stdout)
    assert '<path data-index="0"' in done.stdout
