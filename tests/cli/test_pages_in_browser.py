"""The pages on a phone, on paper, in the dark and without script, in headless Chromium."""

import importlib.util
import itertools
from pathlib import Path
from typing import Any, TypeAlias

import chromium
import pytest
from browser import needs_browser
from golden_captures import analysis_of, page_of
from made_up_pages import gate_result, history_series, sizes_report

from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.captures import load_analysis
from gpuprof.reports.bench.sizes_page import render_sizes
from gpuprof.reports.comparison import page as comparison_page
from gpuprof.reports.gate import page as gate_page
from gpuprof.reports.history.page import render_history
from gpuprof.reports.html.listing import ListedCapture, render_listing
from gpuprof.reports.html.page import render_html
from gpuprof.reports.sections.headline import headline
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.gate.history import ChangePoint
from gpuprof.roofline.gate.result import Explanation

pytestmark = needs_browser

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
SNAPSHOTS = CAPTURES.parent / "memory_snapshot"
WIDTHS = (390, 500, 800, 1400)
_LISTED = (
    *(
        ListedCapture(
            name=name,
            title="train.py",
            created_ns=1_795_000_000_000_000_000,
            made="2026-11-29",
            device="H200",
            step="12 ms",
            utilization="MFU 40%",
            bound_by="compute",
            largest_loss="garbage collection",
        )
        for name in ("first", "second")
    ),
    ListedCapture(name="broken", problem="manifest.json is missing."),
)
Pages: TypeAlias = dict[str, Path]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """One page of each kind, of real captures where there are."""
    folder = tmp_path_factory.mktemp("pages")
    base, head = (load_analysis(CAPTURES / f"h100_attention_{side}") for side in ("base", "head"))
    comparison = compare(base, head)
    gate = gate_result(
        {"attention": 1.2, "train/of a model with a long name": 1.0},
        (Explanation(benchmark="attention", comparison=comparison),),
    )
    series = history_series("train")
    texts = {
        "block": render_html(load_analysis(CAPTURES / "h100_llama_block")),
        "decode": render_html(load_analysis(CAPTURES / "h100_llama2_7b_decode")),
        "memory": render_html(analyze(open_trace(SNAPSHOTS / "out_of_memory.pickle.gz"))),
        "compare": comparison_page.render_html(comparison),
        "gate": gate_page.render_html(gate),
        "listing": render_listing("captures", _LISTED, has_history=True),
        "sizes": render_sizes(sizes_report("abcdefg")),
        "history": render_history([series], [[ChangePoint(index=4, change=0.33, p_value=0)]]),
    }
    found = {name: folder / f"{name}.html" for name in texts}
    for name, text in texts.items():
        found[name].write_text(text, encoding="utf-8")
    return found


# Opens every row and every list, and finds what no one could read: texts in columns of a few
# letters, and a page wider than its screen. Texts that scroll in a box of their own are read there.
_UNREADABLE = """
for (const details of document.querySelectorAll("details")) details.open = true;
const narrow = [...document.querySelectorAll("dd, dt, td, th, p, li, figcaption")]
  .filter((element) => {
    const box = element.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(element).fontSize);
    const least = (letters) => Math.min(letters, 9) * 0.45 * size;
    // First what takes little time: most are wide enough for any word.
    if (box.width >= least(Infinity) || !element.getClientRects().length) return false;
    const words = element.innerText.trim().split(/\\s+/);
    const longest = Math.max(...words.map((word) => word.length));
    return longest > 3 && box.width < least(longest);
  });
return {
  wide: document.documentElement.scrollWidth - innerWidth,
  narrow: narrow.map((element) => element.innerText.slice(0, 40)),
};
"""


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_text_has_room(
    browser: chromium.Chromium, pages: Pages, width: int, script: bool
) -> None:
    found: dict[str, Any] = {}
    for name, page in pages.items():
        browser.open(page, width=width, script=script)
        found[name] = browser.evaluate(_UNREADABLE)
    assert found == {name: {"wide": 0, "narrow": []} for name in pages}


@pytest.mark.parametrize(
    "name",
    [
        "captures/h200_llama_block",
        "captures/h100_cuda_graph",
        "diagnosis/tiny_operators",
        "kineto/cpu-only.json",
        "ranks/gloo4_ddp_work",
    ],
)
def test_what_limits_and_what_to_change_stand_on_the_first_screen(
    browser: chromium.Chromium, tmp_path: Path, name: str
) -> None:
    """Of a laptop and of a phone, with what the change gains."""
    page = tmp_path / "page.html"
    page.write_text(page_of(name), encoding="utf-8")
    told = headline(analysis_of(name))
    for width, height in ((1366, 700), (390, 780)):
        browser.open(page, width=width, height=height, script=False)
        found = browser.evaluate(
            """
            const story = document.querySelector(".story");
            return { text: story.innerText, bottom: story.getBoundingClientRect().bottom };
            """
        )
        assert found["bottom"] < height
        text = " ".join(found["text"].split())
        for part in (told.sentence, told.change, told.where):
            assert part in text


@pytest.mark.parametrize(("width", "paper"), [(390, False), (1400, False), (700, True)])
def test_the_ladders_bars_follow_each_other_without_script(
    browser: chromium.Chromium, pages: Pages, width: int, paper: bool
) -> None:
    browser.open(pages["decode"], width=width, script=False, paper=paper)
    bars = browser.evaluate(
        """
        return [...document.querySelectorAll(".ladder .rung span")].map((bar) => {
          const { left, right, height } = bar.getBoundingClientRect();
          return { left, right, seen: height > 8 && getComputedStyle(bar).visibility };
        });
        """
    )
    assert len(bars) > 4
    *parts, whole = bars
    assert all(bar["seen"] == "visible" for bar in bars)
    assert parts[0]["left"] == pytest.approx(whole["left"], abs=1)
    assert parts[-1]["right"] == pytest.approx(whole["right"], abs=1.5)
    for above, below in itertools.pairwise(parts):
        assert below["left"] == pytest.approx(above["right"], abs=1.5)


def test_an_opened_rows_figures_are_as_wide_as_the_table(
    browser: chromium.Chromium, pages: Pages
) -> None:
    for width in (390, 800):
        browser.open(pages["block"], width=width)
        share = browser.evaluate(
            """
            const row = document.getElementById("op-0");
            row.querySelector("details").open = true;
            return row.querySelector(".figures").getBoundingClientRect().width / innerWidth;
            """
        )
        assert share > 0.85


def test_a_phones_roofline_has_the_width_of_the_screen(
    browser: chromium.Chromium, pages: Pages
) -> None:
    browser.open(pages["block"], width=390)
    drawn = browser.evaluate(
        """
        const area = document.querySelector("#chart .nsewdrag").getBoundingClientRect();
        const labels = [...document.querySelectorAll("#chart .annotation-text")];
        return {
          width: area.width,
          inside: labels.every((label) => {
            const box = label.getBoundingClientRect();
            return box.left >= area.left - 1 && box.right <= area.right + 1;
          }),
          texts: labels.map((label) => label.textContent),
        };
        """
    )
    assert drawn["width"] > 270
    assert drawn["inside"]
    assert any("bf16 tensor 989 TFLOP/s" in text for text in drawn["texts"])


def test_points_outside_of_the_axes_are_counted_and_can_be_shown(
    browser: chromium.Chromium, pages: Pages
) -> None:
    browser.open(pages["block"])
    before, after = browser.evaluate(
        """
        const state = () => ({
          range: document.getElementById("chart").layout.yaxis.range,
          note: document.getElementById("chart-note").textContent,
        });
        const before = state();
        document.getElementById("all-points").click();
        await new Promise((resolve) => setTimeout(resolve, 300));
        return [before, state()];
        """
    )
    assert "1 small point (<0.1% of device time) lies outside of the axes." in before["note"]
    assert "outside" not in after["note"]
    # Its rate is about 7 MFLOP/s; all others are above 100 GFLOP/s.
    assert before["range"][0] > 9
    assert after["range"][0] < 7


@pytest.mark.parametrize(
    ("width", "paper"), [(390, False), (800, False), (1400, False), (700, True)]
)
def test_without_script_the_roofline_is_drawn(
    browser: chromium.Chromium, pages: Pages, width: int, paper: bool
) -> None:
    browser.open(pages["block"], width=width, script=False, paper=paper)
    drawn = browser.evaluate(
        """
        const shown = [...document.querySelectorAll(".picture")]
          .filter((picture) => picture.getBoundingClientRect().width > 0);
        const [picture] = shown;
        const points = [...picture.querySelectorAll("a")];
        return {
          pictures: shown.length,
          height: picture.getBoundingClientRect().height,
          letters: picture.getBoundingClientRect().width / picture.viewBox.baseVal.width * 12.5,
          labels: [...picture.querySelectorAll(".label")].map((label) => label.textContent),
          points: points.length,
          rows: points.every((point) => document.querySelector(point.getAttribute("href"))),
        };
        """
    )
    assert drawn["pictures"] == 1
    assert drawn["height"] > 250
    assert drawn["letters"] > 9
    assert "bf16 tensor 989 TFLOP/s" in drawn["labels"]
    assert drawn["points"] > 20
    assert drawn["rows"]


@pytest.mark.parametrize("width", [390, 1400])
def test_without_script_pairs_and_histories_are_drawn(
    browser: chromium.Chromium, pages: Pages, width: int
) -> None:
    browser.open(pages["gate"], width=width, script=False)
    strips = browser.evaluate(
        """
        return [...document.querySelectorAll(".strip:has(.dot)")].map((strip) => {
          const track = strip.querySelector(".track").getBoundingClientRect();
          return [...strip.querySelectorAll(".dot")]
            .map((dot) => (dot.getBoundingClientRect().x - track.x) / track.width);
        });
        """
    )
    assert [len(dots) for dots in strips] == [5, 5]
    # One benchmark became slower: its dots lie further right.
    assert min(strips[0]) > max(strips[1])

    browser.open(pages["history"], width=width, script=False)
    heights = browser.evaluate(
        """
        return [...document.querySelectorAll(".drawing .dot")]
          .map((dot) => dot.getBoundingClientRect().y);
        """
    )
    assert len(heights) == 8
    assert min(heights[:4]) > max(heights[4:]) + 20


def test_with_script_the_drawings_make_room(browser: chromium.Chromium, pages: Pages) -> None:
    for name in ("block", "memory", "gate", "history"):
        browser.open(pages[name])
        drawings = ".picture, .memory-drawing, .strip, .drawing"
        left = (
            f"return [...document.querySelectorAll('{drawings}')]"
            ".filter((drawing) => drawing.getClientRects().length).length"
        )
        assert browser.evaluate(left) == 0
        assert browser.evaluate("return document.querySelectorAll('.main-svg').length") > 0


def test_an_opened_row_has_one_base_for_all_amounts(
    browser: chromium.Chromium, pages: Pages
) -> None:
    browser.open(pages["block"])
    row = browser.evaluate(
        """
        const row = document.getElementById("op-1");
        row.scrollIntoView({ behavior: "instant" });
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
        row.querySelector("details").open = true;
        const terms = [...row.querySelectorAll("dt")];
        return {
          basis: row.querySelector(".basis").textContent,
          calls: row.cells[1].textContent,
          figures: Object.fromEntries(
            terms.map((term) => [term.textContent, term.nextElementSibling.innerText])),
        };
        """
    )
    assert row["basis"] == "Figures of one step, mean of 3 profiled"
    assert row["figures"]["Calls"] == row["calls"]
    # Of 2 calls a step.
    flops = 2 * 2 * 11008 * 4096 * 4096
    assert row["figures"]["FLOPs"] == f"{flops / 1e9:.0f} GFLOP bf16 matmul"
    assert row["figures"]["Shapes"].split("\n")[0].startswith("11008x4096x4096 bf16")


# The contrast of each text with what is behind it, as WCAG 2.1 defines it, where it is below AA.
_LOW_CONTRAST = """
for (const details of document.querySelectorAll("details")) details.open = true;
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
// A page has few colours and thousands of texts.
const known = new Map();
const painted = (text) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  return canvas.getImageData(0, 0, 1, 1).data;
};
const rgba = (text) => {
  if (!known.has(text)) known.set(text, painted(text));
  return known.get(text);
};
const luminance = ([r, g, b]) => [r, g, b]
  .map((part) => part / 255)
  .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
const behind = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const colour = rgba(getComputedStyle(each).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255, 255];
};
const contrast = (a, b) => {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
};
const found = [];
for (const element of document.querySelectorAll("body *:not(script):not(style)")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!own || !element.getClientRects().length) continue;
  const style = getComputedStyle(element);
  const drawn = element instanceof SVGElement;
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const ratio = contrast(rgba(drawn ? style.fill : style.color), behind(element));
  if (ratio < (large ? 3 : 4.5)) {
    found.push(`${ratio.toFixed(2)} ${element.className}: ${element.textContent.slice(0, 30)}`);
  }
}
return found;
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_stands_out_from_its_background(
    browser: chromium.Chromium, pages: Pages, dark: bool
) -> None:
    found: dict[str, Any] = {}
    for name, page in pages.items():
        browser.open(page, dark=dark)
        found[name] = browser.evaluate(_LOW_CONTRAST)
    assert found == {name: [] for name in pages}


def test_without_script_every_text_stands_out_from_its_background(
    browser: chromium.Chromium, pages: Pages
) -> None:
    found: dict[tuple[str, bool], Any] = {}
    for name, page in pages.items():
        browser.open(page, script=False)
        for dark in (False, True):
            browser.colour(dark=dark)
            is_dark = "return matchMedia('(prefers-color-scheme: dark)').matches"
            assert browser.evaluate(is_dark) == dark
            found[name, dark] = browser.evaluate(_LOW_CONTRAST)
    assert found == {(name, dark): [] for name in pages for dark in (False, True)}


# All of axe's rules of WCAG 2.1 A and AA but contrast, which the test above computes for all texts:
# axe 4.4 cannot read the colours that newer style sheets have.
_BARRIERS = """
// Rows of a table are alike, and axe takes its time for each.
for (const row of document.querySelectorAll("tbody tr:nth-child(n + 4)")) row.remove();
const found = await axe.run(document, {
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
  rules: { "color-contrast": { enabled: false } },
  resultTypes: ["violations"],
});
return found.violations.map(({ id, nodes }) =>
  `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" ")}`);
"""


def _axe() -> str:
    found = importlib.util.find_spec("axe_core_python")
    assert found is not None, "pip install axe-core-python"
    assert found.submodule_search_locations is not None
    (folder,) = found.submodule_search_locations
    return (Path(folder) / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_barrier(browser: chromium.Chromium, pages: Pages, dark: bool) -> None:
    found: dict[str, Any] = {}
    # Other rules than contrast do not depend on colours: one page is enough in the dark. Of reports
    # one is large enough.
    for name in ["gate"] if dark else pages.keys() - {"decode"}:
        browser.open(pages[name], dark=dark)
        browser.evaluate(_axe())
        found[name] = browser.evaluate(_BARRIERS)
    assert found == {name: [] for name in found}


def test_heads_of_sections_follow_each_other(browser: chromium.Chromium, pages: Pages) -> None:
    for page in pages.values():
        browser.open(page, script=False)
        levels = browser.evaluate(
            "return [...document.querySelectorAll('h1, h2, h3, h4')]"
            ".filter((head) => !head.closest('dialog')).map((head) => Number(head.tagName[1]))"
        )
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_a_row_opens_by_the_keyboard(browser: chromium.Chromium, pages: Pages) -> None:
    browser.open(pages["block"])
    browser.evaluate("document.querySelector('input[data-table=op-table]').focus()")
    state = """
        const focused = document.activeElement;
        const details = focused.closest("details");
        return {
          row: focused.closest("tr")?.id ?? "",
          open: details?.open,
          outline: getComputedStyle(focused).outlineStyle,
        };
    """
    # Past the choice of columns, the button that copies, and the heads of the columns.
    for _ in range(16):
        browser.press("Tab")
        if browser.evaluate(state)["row"]:
            break
    assert browser.evaluate(state) == {"row": "op-0", "open": False, "outline": "solid"}
    browser.press("Enter")
    assert browser.evaluate(state)["open"] is True
    # The next stop is inside of the opened row.
    browser.press("Tab")
    assert browser.evaluate(state)["row"] == "op-0"


def test_verdicts_differ_by_shape_too(browser: chromium.Chromium, pages: Pages) -> None:
    browser.open(pages["gate"])
    with_script = browser.evaluate(
        """
        const paths = document.querySelectorAll("#differences .points path");
        return new Set([...paths].slice(0, 10).map((path) => path.getAttribute("d"))).size;
        """
    )
    browser.open(pages["gate"], script=False)
    without = browser.evaluate(
        """
        const dots = [...document.querySelectorAll(".strip .dot")];
        return new Set(dots.map((dot) => getComputedStyle(dot).clipPath)).size;
        """
    )
    assert (with_script, without) == (2, 2)


_PLOT = """
document.documentElement.style.scrollBehavior = "auto";
// Room to scroll, on a short page too.
document.body.style.paddingBottom = "600px";
let plot = null;
for (let waited = 0; plot === null && waited < 100; waited += 1) {
  await new Promise((resolve) => setTimeout(resolve, 100));
  plot = document.querySelector(".js-plotly-plot .drag");
}
plot.scrollIntoView({ block: "center" });
await new Promise((resolve) => setTimeout(resolve, 300));
const box = plot.getBoundingClientRect();
"""


@pytest.mark.parametrize("name", ["block", "gate", "history"])
def test_a_finger_over_a_plot_scrolls_the_page(
    browser: chromium.Chromium, pages: Pages, name: str
) -> None:
    browser.open(pages[name], width=390, height=500, touch=True)
    before, x, y, ranges = browser.evaluate(
        f"""{_PLOT}
        const {{ xaxis, yaxis }} = plot.closest(".js-plotly-plot").layout;
        const y = Math.min(box.bottom, innerHeight) - 20;
        return [scrollY, box.x + box.width / 2, y, [xaxis.range, yaxis.range]];
        """
    )
    browser.swipe(x, y, up=120)
    after, ranges_after = browser.evaluate(
        """
        await new Promise((resolve) => setTimeout(resolve, 500));
        const { xaxis, yaxis } = document.querySelector(".js-plotly-plot").layout;
        return [scrollY, [xaxis.range, yaxis.range]];
        """
    )
    assert after > before + 30
    assert ranges_after == ranges


def test_a_tap_on_a_point_opens_its_row_alone(browser: chromium.Chromium, pages: Pages) -> None:
    browser.open(pages["block"], width=390, height=844, touch=True)
    x, y, least = browser.evaluate(
        f"""{_PLOT}
        const point = document.querySelector("#chart .points path").getBoundingClientRect();
        const range = document.getElementById("chart").layout.yaxis.range;
        return [point.x + point.width / 2, point.y + point.height / 2, range[0]];
        """
    )
    browser.swipe(x, y)
    opened, least_after = browser.evaluate(
        """
        await new Promise((resolve) => setTimeout(resolve, 800));
        const rows = [...document.querySelectorAll("tr:has(details[open])")];
        return [rows.map((row) => row.id), document.getElementById("chart").layout.yaxis.range[0]];
        """
    )
    assert len(opened) == 1
    assert opened[0].startswith("kernel-")
    assert least_after == least


def test_a_moved_point_tells_its_figures_at_once_and_leads_to_its_row(
    browser: chromium.Chromium, pages: Pages
) -> None:
    browser.open(pages["compare"])
    found = browser.evaluate(
        """
        const [move] = document.querySelectorAll("svg.two.full a.move.new");
        const card = document.getElementById("card");
        move.focus();
        const told = { text: card.innerText, shown: card.getClientRects().length > 0 };
        move.dispatchEvent(new MouseEvent("click", { bubbles: true }));
        await new Promise((resolve) => setTimeout(resolve, 100));
        const row = document.querySelector(":target");
        return {
          ...told,
          away: card.hidden,
          row: `#${row.id}`,
          href: move.getAttribute("href"),
          open: row.querySelector("details").open,
        };
        """
    )
    assert found["shown"]
    assert "FLOP/byte" in found["text"]
    assert "head: " in found["text"]
    assert found["away"]
    assert found["row"] == found["href"]
    assert found["open"]

    browser.open(pages["compare"], script=False)
    drawn = browser.evaluate(
        """
        const shown = [...document.querySelectorAll("svg.two, svg.waterfall")]
          .filter((drawing) => drawing.getBoundingClientRect().width > 0);
        return shown.map((drawing) => drawing.querySelectorAll("title").length);
        """
    )
    # The waterfall and the rooflines, each with what its parts say.
    assert len(drawn) == 2
    assert min(drawn) > 5
