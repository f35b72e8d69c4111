"""The time line as a reader uses it: zoom, pan, point and select, in headless Chromium."""

from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser
from chromium import Chromium

from gpuprof.collectors import storage
from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

pytestmark = needs_browser

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "h200_llama_block"

_STATE = """
const frames = async () => {
  for (let count = 0; count < 3; count += 1) await new Promise(requestAnimationFrame);
};
const line = globalThis.timeline;
const { state } = line;
const box = () => line.canvas.getBoundingClientRect();
const card = line.figure.querySelector(".card");
const read = async () => {
  await frames();
  return {
    view: [state.view.from, state.view.to], frames: state.frames,
    card: card.hidden ? "" : card.innerText, hash: location.hash, top: scrollY,
    picked: state.picked ? [state.picked.lane.kind, state.picked.index] : null,
    arrows: line.arrows().length, chosen: line.figure.querySelector(".chosen").textContent,
    dimmed: state.selection ? line.labels.length - state.selection.size : 0,
    selected: [...document.querySelectorAll("tr.selected")].map((row) => row.id),
    pressed: [...line.figure.querySelectorAll('[aria-pressed="true"]')].map((b) => b.dataset.step),
  };
};
// The middle of what is longest in view of the first lane of a kind, on the screen.
const longest = (kind) => {
  const lane = state.step.lanes.find((one) => one.kind === kind);
  const ends = (index) =>
    [Math.max(lane.starts[index], state.view.from), Math.min(lane.ends[index], state.view.to)];
  const seen = lane.starts.map((_, index) => ends(index)[1] - ends(index)[0]);
  const [from, to] = ends(seen.indexOf(Math.max(...seen)));
  return { x: box().left + line.X((from + to) / 2), y: box().top + lane.y + lane.height / 2 };
};
"""


def after(browser: Chromium, body: str = "") -> dict[str, Any]:
    found: dict[str, Any] = browser.evaluate(f"{_STATE}\n{body}\nreturn read();")
    return found


def place_of(browser: Chromium, kind: str) -> tuple[float, float]:
    x, y = browser.evaluate(f'{_STATE}\nconst at = longest("{kind}"); return [at.x, at.y];')
    return float(x), float(y)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze(storage.load(CAPTURE))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, analysis: Analysis) -> Path:
    found = tmp_path_factory.mktemp("timeline") / "page.html"
    found.write_text(render_html(analysis), encoding="utf-8")
    return found


def test_a_reader_zooms_pans_points_and_selects(
    browser: Chromium, page: Path, analysis: Analysis
) -> None:
    assert analysis.timeline is not None
    typical, slowest = analysis.timeline.steps
    browser.open(page)
    whole = after(
        browser,
        """
        document.documentElement.style.scrollBehavior = "auto";
        line.canvas.scrollIntoView({ block: "center" });
        line.canvas.focus({ preventScroll: true });
        """,
    )
    assert whole["view"] == [-typical.lead_ns, typical.length_ns]
    assert whole["pressed"] == ["0"]

    def length(found: dict[str, Any]) -> float:
        return float(found["view"][1] - found["view"][0])

    # Each key is one frame at most, and where nothing changes there is none.
    browser.press("+")
    browser.press("+")
    closer = after(browser)
    assert length(closer) == pytest.approx(length(whole) / 2.25)
    assert 1 <= closer["frames"] - whole["frames"] <= 2
    assert after(browser)["frames"] == closer["frames"]
    browser.press("ArrowRight")
    panned = after(browser)
    assert panned["view"][0] == pytest.approx(closer["view"][0] + 0.2 * length(closer))
    browser.press("-")
    assert length(after(browser)) == pytest.approx(length(whole) / 1.5)
    browser.press("Home")
    assert after(browser)["view"] == whole["view"]

    # A drag takes the piece under the mouse with it.
    browser.press("+")
    before = after(browser)
    x, y = place_of(browser, "stream")
    browser.drag(x, y, right=-100)
    dragged = after(browser)
    assert dragged["view"][0] > before["view"][0]
    assert length(dragged) == pytest.approx(length(before))
    assert dragged["picked"] is None

    # What is under the mouse says all that is known of it.
    x, y = place_of(browser, "stream")
    browser.hover(x, y)
    card = after(browser)["card"]
    for part in ("Begins", "Lasts", "of the step", "Launched", "Roof", "Class", "Operator"):
        assert part in card
    x, y = place_of(browser, "idle")
    browser.hover(x, y)
    assert "no device work" in after(browser)["card"]

    # In a gap of a stream, why.
    x, y = browser.evaluate(
        f"""{_STATE}
        const lane = state.step.lanes.find(({{ kind }}) => kind === "stream");
        const gaps = lane.ends.slice(0, -1).map((end, at) => lane.starts[at + 1] - end);
        const at = gaps.indexOf(Math.max(...gaps));
        line.show(lane.ends[at] - gaps[at], lane.starts[at + 1] + gaps[at]);
        const x = line.X(lane.ends[at] + gaps[at] / 2);
        return [box().left + x, box().top + lane.y + lane.height / 2];
        """
    )
    browser.hover(x, y)
    card = after(browser)["card"]
    assert "No work on stream 7" in card
    assert "Why" in card
    browser.press("Home")

    # A click selects the kernel in the tables too, and the page stays.
    x, y = place_of(browser, "stream")
    browser.drag(x, y)
    found = after(browser)
    assert found["picked"][0] == "stream"
    assert found["arrows"] == 1
    assert found["selected"] == [found["hash"][1:]]
    assert "pieces of device work" in found["chosen"]
    assert found["dimmed"] > 0
    assert found["top"] == whole["top"]

    # From a launch the lines lead to its work.
    browser.press("Escape")
    assert after(browser)["selected"] == []
    found = after(
        browser,
        """
        const stream = state.step.lanes.find(({ kind }) => kind === "stream");
        const index = stream.launched.findIndex((time) => time > state.view.from);
        const call = state.step.lanes[stream.launched_from[index]];
        const piece = call.starts.findIndex((start, at) =>
          start <= stream.launched[index] && stream.launched[index] < call.ends[at]);
        state.picked = { lane: call, index: piece };
        """,
    )
    assert found["arrows"] >= 1

    # The tables select here: the pieces of a kernel, and an operator's.
    row = after(browser, 'document.querySelector("#kernel-0 td.share").click();')
    assert "pieces of device work" in row["chosen"]
    row = after(browser, 'document.querySelector("#op-0 td.share").click();')
    assert row["dimmed"] > 0

    # The other step, without a mouse: each piece is told.
    after(browser, "line.figure.querySelector(\"[data-step='1']\").click();")
    found = after(browser, "line.canvas.focus({ preventScroll: true });")
    assert found["view"] == [-slowest.lead_ns, slowest.length_ns]
    assert found["pressed"] == ["1"]
    browser.press("ArrowDown")
    first = after(browser)
    assert first["picked"] is not None
    assert "Lasts" in first["card"]
    told = browser.evaluate(f'{_STATE}\nreturn line.figure.querySelector(".told").textContent;')
    assert "Lasts" in told
    browser.press("Enter")
    assert after(browser)["picked"] == first["picked"]


def test_it_fits_a_phone_and_is_a_drawing_without_script(browser: Chromium, page: Path) -> None:
    visible = """
    const shown = (selector) => {
      const box = document.querySelector(selector).getBoundingClientRect();
      return [box.left >= 0 && box.right <= document.documentElement.clientWidth, box.height > 50];
    };
    return [shown(".timeline .drawing"), shown(".timeline canvas.lanes")];
    """
    browser.open(page, width=390, touch=True)
    assert browser.evaluate(visible)[1] == [True, True]
    # A tap selects, and says what it is of.
    after(browser, 'line.canvas.scrollIntoView({ block: "center", behavior: "instant" });')
    x, y = place_of(browser, "stream")
    browser.swipe(x, y)
    tapped = after(browser)
    assert tapped["picked"] is not None
    assert "Lasts" in tapped["card"]
    browser.open(page, width=700, paper=True)
    assert browser.evaluate(visible)[0] == [True, True]
    browser.open(page, width=700, script=False)
    drawn, canvas = browser.evaluate(visible)
    assert drawn == [True, True]
    assert canvas[1] is False
