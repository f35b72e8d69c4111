"""What the time line costs a page: its size, the time until it is there, and frames as it moves.

    python benchmarks/timeline_in_browser.py [--kernels 1000 20000 100000] [--rounds 5]

A step of so many kernels on two streams, all of different names, each with its launch in an
operator, is made up and analysed. Its page is loaded with and without the time line, in turn, so
that a machine that drifts does not count. Then the time line is zoomed and panned, a frame at a
time, beside a canvas of the same size on which nothing is drawn. All that compares is a ratio.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

from capture_builder import CaptureBuilder
from chromium import Chromium, started

from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute

FRAMES = 120
# Each frame of a run of zooms and pans, and what its script takes, in ms.
_MOVED = """
const line = globalThis.timeline;
const next = globalThis.requestAnimationFrame;
const frame = () => new Promise((resolve) => next(resolve));
let drawing = 0;
globalThis.requestAnimationFrame = (draw) => next((at) => {
  const begun = performance.now();
  draw(at);
  drawing += performance.now() - begun;
});
const empty = Object.assign(document.createElement("canvas"), {
  width: line.canvas.width, height: line.canvas.height,
});
line.canvas.parentElement.append(empty);
const context = empty.getContext("2d");
async function run(move) {
  await frame();
  const begun = performance.now();
  for (let number = 0; number < FRAMES; number += 1) {
    move(number);
    await frame();
  }
  return (performance.now() - begun) / FRAMES;
}
const nothing = await run(() => context.clearRect(0, 0, empty.width, empty.height));
line.showAll();
await frame();
drawing = 0;
const moving = await run((number) => (number % 30 < 15 ? line.zoom(1 / 1.2) : line.pan(0.1)));
const each = drawing / FRAMES;
line.showAll();
await frame();
drawing = 0;
const whole = await run(() => line.pan(0));
return { nothing, moving, each, wholeEach: drawing / FRAMES };
""".replace("FRAMES", str(FRAMES))


def made_up(kernels: int) -> Analysis:
    """The analysis of one step of so many kernels."""
    build = CaptureBuilder()
    build.step("profiled", 0, kernels * 10_000)
    for number in range(kernels):
        start = 10_000 * number
        build.mm(start + 100, start + 4_000, m=64 + number % 200)
        launched, begins = start + 500, start + 3_000
        ends = begins + 1_000 + (number * 7919) % 6_000
        build.kernel(launched, begins, ends, f"kernel_{number}", stream=7 + number % 2)
    capture = attribute(build.build())
    begun = time.perf_counter()
    found = analyze(capture)
    print(f"{kernels} kernels: analysed in {time.perf_counter() - begun:.1f} s")
    return found


def loaded_ms(browser: Chromium, page: Path) -> float:
    """From the start of the page until its plots, and the time line if it has one, are drawn."""
    browser.open(page)
    return float(browser.evaluate("return performance.now();"))


def compare(browser: Chromium, folder: Path, kernels: int, rounds: int) -> None:
    """Print what the time line costs the page of so many kernels."""
    analysis = made_up(kernels)
    pages = {}
    for name, shown in (
        ("with", analysis),
        ("without", msgspec.structs.replace(analysis, timeline=None)),
    ):
        pages[name] = folder / f"{name}.html"
        pages[name].write_text(render_html(shown), encoding="utf-8")
    sizes = {name: page.stat().st_size for name, page in pages.items()}
    times: dict[str, list[float]] = {name: [] for name in pages}
    for _ in range(rounds):
        for name, page in pages.items():
            times[name].append(loaded_ms(browser, page))
    with_ms, without_ms = (statistics.median(times[name]) for name in ("with", "without"))
    print(
        f"  page {sizes['with'] / 1e6:.2f} MB, {sizes['without'] / 1e6:.2f} MB without; loaded in "
        f"{with_ms:.0f} ms, {without_ms:.0f} ms without: {with_ms / without_ms:.2f} times"
    )
    browser.open(pages["with"])
    moved: dict[str, Any] = browser.evaluate(_MOVED)
    print(
        f"  a frame every {moved['moving']:.1f} ms as it moves, {moved['nothing']:.1f} ms on an "
        f"empty canvas: {moved['nothing'] / moved['moving']:.2f} of its rate; drawing takes "
        f"{moved['each']:.1f} ms of each, {moved['wholeEach']:.1f} ms of one with the whole step"
    )


def main() -> None:
    """Print a comparison for each number of kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[1_000, 20_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, started(Path(folder) / "profile") as browser:
        for kernels in arguments.kernels:
            compare(browser, Path(folder), kernels, arguments.rounds)


if __name__ == "__main__":
    main()
