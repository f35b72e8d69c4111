"""What the tables of a page do: order, columns, folds, copies. In headless Chromium."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from browser import needs_browser
from chromium import Chromium

from gpuprof.profiler.captures import load_analysis
from gpuprof.reports.html.page import render_html
from gpuprof.reports.point_groups import grouped
from gpuprof.roofline.analysis import Analysis, ModuleTree
from gpuprof.roofline.measured_figures import (
    DifferenceReason,
    Measured,
    MeasuredKernel,
    MeasuredWork,
)
from gpuprof.roofline.module_figures import ModuleWork

pytestmark = needs_browser

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
HOSTILE = '=HYPERLINK("http://example.org")'
_HELPERS = """
const head = (table, name) => [...table.tHead.rows[0].cells]
  .find((cell) => cell.textContent === name);
const column = (table, name) => [...table.tBodies[0].rows]
  .map((row) => row.cells[head(table, name).cellIndex]);
const shown = (table) => [...table.tBodies[0].rows]
  .filter((row) => row.getClientRects().length).map((row) => row.id);
const kernels = document.getElementById("kernel-table");
"""


@pytest.fixture(scope="module")
def block() -> Analysis:
    """A recording whose first kernel has a name that a spreadsheet would run."""
    found = load_analysis(CAPTURES / "h200_llama_block")
    first = msgspec.structs.replace(found.kernels[0], name=HOSTILE)
    times = (3_000_000, 40_000, 900, 6_000_000_000)
    modules = tuple(
        ModuleWork(
            path=f"block.{index}",
            depth=0,
            device_ns=times[index % 4] + index,
            own_ns=1,
            device_fraction=0.1,
            flops=0,
            bytes=0,
            counted_fraction=1.0,
            kind="memory",
        )
        for index in range(30)
    )
    counted = tuple(
        MeasuredKernel(
            kernels=(f"kernel_{index}",),
            op="aten::mm",
            detail="",
            phase="forward",
            launches=1,
            calls=1,
            device_ns=1000,
            flops=(),
            bytes_read=Measured(read, 1000),
            bytes_written=Measured(10, 10),
            l2_bytes=None,
            reasons=(DifferenceReason("bytes read", f"reason {index}"),),
        )
        for index, read in enumerate((2_000_000, 900, 30_000))
    )
    return msgspec.structs.replace(
        found,
        measured=MeasuredWork(launches=3, launches_in_trace=9, kernels=counted),
        kernels=(first, *found.kernels[1:]),
        modules=ModuleTree(with_module=1.0, with_line=1.0, rows=modules),
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, block: Analysis) -> Path:
    found = tmp_path_factory.mktemp("tables") / "block.html"
    found.write_text(render_html(block), encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def opened(running_browser: Chromium, page: Path) -> Iterator[Chromium]:
    """One page for all tests here; each looks at columns or tables that no other has changed."""
    running_browser.open(page)
    yield running_browser
    running_browser.leave()


def test_rows_are_sorted_by_gain_and_come_back_in_their_order(
    opened: Chromium, block: Analysis
) -> None:
    ways = opened.evaluate(
        f"""{_HELPERS}
        const ways = [];
        for (let count = 0; count < 3; count += 1) {{
          head(kernels, "Gain").querySelector("button").click();
          ways.push(column(kernels, "Gain").map((cell) => cell.dataset.value));
        }}
        ways.push([...kernels.tBodies[0].rows].map((row) => row.id));
        return ways;
        """
    )
    down = [float(value) for value in ways[0] if value]
    assert down == sorted(down, reverse=True)
    assert max(down) == max(point.bottleneck.gain_ns or 0 for point in block.kernels) / 1e6
    assert [float(value) for value in ways[1] if value] == down[::-1]
    assert ways[3] == [f"kernel-{index}" for index in range(len(ways[3]))]


def test_a_plain_table_is_sorted_by_what_its_texts_say_and_goes_on_in_its_fold(
    opened: Chromium,
) -> None:
    before, after, texts = opened.evaluate(
        f"""{_HELPERS}
        const table = document.getElementById("module-0").closest("table");
        const before = shown(table);
        head(table, "Time").querySelector("button").click();
        return [before, table.tBodies[0].rows.length,
          column(table, "Time").map((cell) => cell.textContent)];
        """
    )
    assert before == [f"module-{index}" for index in range(12)]
    assert after == 30
    units = [text.split("\N{NO-BREAK SPACE}")[-1].split()[-1] for text in texts]
    assert units == sorted(units, key=["s", "ms", "µs", "ns"].index)
    assert set(units) >= {"s", "ms", "µs"}


def test_rows_of_a_plain_table_are_filtered_and_selected_by_keys(opened: Chromium) -> None:
    found = opened.evaluate(
        """
        const table = document.getElementById("module-0").closest("table");
        const input = document.querySelector(`input[data-table="${table.id}"]`);
        input.value = "block.27";
        input.dispatchEvent(new Event("input"));
        input.focus();
        return [...table.tBodies[0].rows].filter((row) => row.getClientRects().length)
          .map((row) => row.id);
        """
    )
    assert found == ["module-27"]
    opened.press("ArrowDown")
    opened.press("Enter")
    focused, selected, hash_ = opened.evaluate(
        """
        const selected = [...document.querySelectorAll(".selected")].map((row) => row.id);
        const focused = document.activeElement.id;
        document.dispatchEvent(new CustomEvent("gpuprof:select", { detail: null }));
        return [focused, selected, location.hash];
        """
    )
    assert (focused, selected, hash_) == ("module-27", ["module-27"], "")


def test_rows_of_several_lines_are_sorted_with_what_stands_below_them(opened: Chromium) -> None:
    order, reasons, text = opened.evaluate(
        f"""{_HELPERS}
        const table = document.getElementById("measured-0").closest("table");
        head(table, "DRAM read").querySelector("button").click();
        const bodies = [...table.tBodies];
        return [
          bodies.map((body) => body.id),
          bodies.map((body) => body.rows[1].textContent.trim()),
          bodies[0].rows[0].cells[3].textContent,
        ];
        """
    )
    assert order == ["measured-0", "measured-2", "measured-1"]
    assert [reason.split(": ")[1] for reason in reasons] == ["reason 0", "reason 2", "reason 1"]
    assert text.startswith("2.00 MB")


def test_long_tables_are_folded_until_one_looks_for_something(
    opened: Chromium, block: Analysis
) -> None:
    first, found, opener, everything = opened.evaluate(
        f"""{_HELPERS}
        const first = shown(kernels).length;
        const input = document.querySelector('input[data-table="kernel-table"]');
        input.value = "Memset";
        input.dispatchEvent(new Event("input"));
        const found = shown(kernels);
        input.value = "";
        input.dispatchEvent(new Event("input"));
        const opener = kernels.closest("section").querySelector(".opener");
        const text = opener.textContent;
        opener.click();
        const number = shown(kernels).length;
        opener.click();
        return [first, found, text, number];
        """
    )
    assert first == 25
    assert found
    assert all(int(row.rpartition("-")[2]) > 24 for row in found)
    assert opener.startswith(f"{everything - 25} more rows, ")
    folded = sum(each.point.device_fraction for each in grouped(block.kernels)[25:])
    assert opener.endswith(f", {100 * folded:.1f}% of device time")


def test_a_shortened_name_tells_the_recorded_one(opened: Chromium) -> None:
    told = opened.evaluate(
        """
        const title = document.querySelector("#kernel-0 .title");
        const row = title.closest("tr");
        const { key } = row.dataset;
        row.dataset.key = "void at::native::k<4>(int)";
        title.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
        row.dataset.key = key;
        return [title.textContent, title.title];
        """
    )
    assert told == [HOSTILE, "void at::native::k<4>(int)"]


def test_columns_are_hidden_and_shown(opened: Chromium) -> None:
    before, hidden, again = opened.evaluate(
        f"""{_HELPERS}
        const width = () => head(kernels, "Bytes/s").getBoundingClientRect().width;
        const menu = document.querySelector("#kernels .choices");
        menu.open = true;
        await new Promise((resolve) => setTimeout(resolve, 50));
        const box = [...menu.querySelectorAll("label")]
          .find((label) => label.textContent.trim() === "Bytes/s").firstChild;
        const before = [box.checked, width() > 0];
        box.click();
        const hidden = [box.checked, width() > 0];
        box.click();
        return [before, hidden, [box.checked, width() > 0]];
        """
    )
    assert (before, hidden, again) == ([True, True], [False, False], [True, True])


def test_a_copy_has_full_figures_recorded_names_and_no_formula(
    opened: Chromium, block: Analysis
) -> None:
    copied = opened.evaluate(
        f"""{_HELPERS}
        let copied = "";
        Object.defineProperty(navigator, "clipboard", {{
          configurable: true,
          value: {{ writeText: async (text) => {{ copied = text; }} }},
        }});
        const copy = [...document.querySelectorAll("#kernels button")]
          .find((button) => button.textContent === "Copy as CSV");
        copy.click();
        await Promise.resolve();
        return copied;
        """
    )
    rows = list(csv.DictReader(io.StringIO(copied, newline="")))
    steps = block.steps.profiled
    # What is folded away is copied too.
    assert len(rows) == len(grouped(block.kernels)) > 25
    assert rows[0]["Recorded name"] == f"'{HOSTILE}"
    assert rows[1]["Recorded name"] == block.kernels[1].name
    assert float(rows[1]["Device time (ms)"]) == block.kernels[1].device_ns / steps / 1e6
    assert float(rows[1]["Share of the roof"]) == block.kernels[1].roof_fraction
    assert rows[1]["Class"] == block.kernels[1].bottleneck.kind


def test_a_copy_without_rights_takes_what_is_selected(opened: Chromium) -> None:
    text = opened.evaluate(
        f"""{_HELPERS}
        Object.defineProperty(navigator, "clipboard", {{ configurable: true, value: undefined }});
        document.execCommand = () => {{
          globalThis.taken = document.activeElement.value;
          return true;
        }};
        const copy = [...document.querySelectorAll("#ops button")]
          .find((button) => button.textContent === "Copy as CSV");
        copy.click();
        await new Promise((resolve) => setTimeout(resolve, 50));
        return [globalThis.taken.split("\\r\\n")[0], copy.textContent];
        """
    )
    assert text[0].startswith("Operator,Calls,Device time (ms),")
    assert text[1] == "Copied"


def test_all_columns_on_a_narrow_screen_leave_room_for_names(browser: Chromium, page: Path) -> None:
    browser.open(page, width=800)
    name, figures, wide = browser.evaluate(
        f"""{_HELPERS}
        kernels.scrollIntoView({{ behavior: "instant" }});
        const menu = document.querySelector("#kernels .choices");
        menu.open = true;
        await new Promise((resolve) => setTimeout(resolve, 50));
        for (const box of menu.querySelectorAll("input")) if (!box.checked) box.click();
        const width = (head) => head.getBoundingClientRect().width;
        const [first, ...others] = [...kernels.tHead.rows[0].cells].map(width);
        return [first, Math.min(...others), document.documentElement.scrollWidth - innerWidth];
        """
    )
    assert name >= 200
    assert figures > 40
    assert wide == 0
