"""Pages of recordings of many kinds are clicked through in headless Chromium, without an error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from browser import needs_browser
from chromium import Chromium
from made_up_pages import gate_result
from many_kernels import many_kernels, many_ranks

from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.captures import load_analysis
from gpuprof.reports.gate import page as gate_page
from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analyze import analyze

pytestmark = needs_browser

_DATA: Final = Path(__file__).parents[1] / "data"
_LARGEST_BYTES: Final = 6_000_000


def _many() -> str:
    """More kernels than have a row, on a job of 1,024 ranks."""
    analysis = analyze(many_kernels(400))
    return render_html(msgspec.structs.replace(analysis, ranks=many_ranks(1024), world_size=1024))


_PAGES: Final[dict[str, Callable[[], str]]] = {
    "CPU": lambda: render_html(analyze(open_trace(_DATA / "kineto/gloo_collectives_0.json.gz"))),
    "H200 block": lambda: render_html(load_analysis(_DATA / "captures/h200_llama_block")),
    "launch-bound": lambda: render_html(load_analysis(_DATA / "diagnosis/tiny_operators")),
    "straggler": lambda: render_html(analyze(open_trace(_DATA / "ranks/gloo4_ddp_work"))),
    "graph replay": lambda: render_html(load_analysis(_DATA / "diagnosis/cuda_graph")),
    "1,024 ranks": _many,
}
# Everything that can be clicked once: each level of the plot with a point of it, the head of each
# column, a row of each table, the list of keys.
_CLICKS = """
const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
const found = { levels: {}, tables: 0, unsorted: [], selected: [], errors: [] };
addEventListener("error", (event) => found.errors.push(event.message));
addEventListener("unhandledrejection", (event) => found.errors.push(String(event.reason)));
const selected = () => [...document.querySelectorAll(".selected")].map((row) => row.id);
const chart = document.getElementById("chart");
const data = JSON.parse(document.getElementById("chart-data").textContent);
for (const level of [...data.levels, ...(data.links?.levels ?? [])]) {
  document.querySelector(`[data-level="${level.name}"]`).click();
  await frame();
  const drawn = chart.data.filter((trace) => trace.customdata && trace.name !== "modelled");
  const rows = drawn.flatMap((trace) => trace.customdata);
  const fits = chart.layout.xaxis.range.every(Number.isFinite);
  found.levels[level.name] = [level.points.length, rows.length, fits];
  if (!rows.length) continue;
  chart.emit("plotly_click", { points: [{ customdata: rows[0] }] });
  found.selected.push([rows[0], selected()]);
}
for (const table of document.querySelectorAll("table:has(thead th button)")) {
  found.tables += 1;
  const order = () => [...table.tBodies[0].rows].map((row) => row.textContent).join("\\n");
  const before = order();
  const heads = [...table.tHead.querySelectorAll("button")];
  for (const head of before.length < 50_000 ? heads : heads.slice(0, 2)) {
    for (let count = 0; count < 3; count += 1) head.click();
  }
  if (order() !== before) found.unsorted.push(table.id);
  const row = table.querySelector("tr[data-kind]");
  if (!row) continue;
  row.cells[1].click();
  found.selected.push([row.id, selected()]);
}
document.querySelector("button.keys").click();
found.keys = document.getElementById("keys").open;
document.getElementById("keys").close();
await frame();
found.wide = document.documentElement.scrollWidth - innerWidth;
found.loaded = performance.getEntriesByType("resource").map((entry) => entry.name)
  .filter((name) => /^(https?|wss?):/.test(name));
return found;
"""


@pytest.mark.parametrize("name", _PAGES)
def test_all_of_a_report_can_be_clicked(browser: Chromium, tmp_path: Path, name: str) -> None:
    page = tmp_path / "page.html"
    page.write_text(_PAGES[name](), encoding="utf-8")
    assert page.stat().st_size < _LARGEST_BYTES
    browser.open(page)
    found: dict[str, Any] = browser.evaluate(_CLICKS)
    assert found["errors"] == []
    assert found["loaded"] == []
    assert found["wide"] == 0
    assert found["keys"]
    assert {"kernel", "op"} <= found["levels"].keys()
    assert all(expected == drawn and fits for expected, drawn, fits in found["levels"].values())
    assert found["tables"] >= 3
    # Three clicks on each head leave the rows as they were.
    assert found["unsorted"] == []
    assert len(found["selected"]) >= 4
    assert all(clicked in selected for clicked, selected in found["selected"])


def test_a_gates_page_can_be_clicked(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = gate_page.render_html(gate_result({"slow": 1.2, "as before": 1.0}))
    page.write_text(text, encoding="utf-8")
    browser.open(page)
    shown, keys = browser.evaluate(
        """
        const heads = document.querySelectorAll("#verdict-table thead button");
        heads[0].click();
        heads[0].click();
        document.querySelector("button.keys").click();
        return [
          [...document.querySelectorAll("#verdict-table .title")].map((title) => title.textContent),
          document.getElementById("keys").open,
        ];
        """
    )
    assert shown == ["slow", "as before"]
    assert keys
