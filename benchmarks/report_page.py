"""How large is a report's page, and how soon can it be used?

    python benchmarks/report_page.py [--kernels 20000] [--ranks 1024] [--rounds 5]

Of a recorded step and of a made-up one with as many distinct kernels and operators, and ranks, a
page is made and opened in headless Chromium, interleaved with an empty page. Printed are its size,
the time to make it, and medians of: until its tables and keys work (DOMContentLoaded), until its
plots are drawn, each also as a ratio to loading the empty page, the longest task that blocks it
meanwhile, and what going to the table of kernels, a letter in its filter, sorting it and selecting
a row of it take until the next frame is there. Needs a browser (CONTRIBUTING.md).
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

from chromium import Chromium, started
from many_kernels import many_kernels, many_ranks

from gpuprof.profiler.captures import load_analysis
from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analyze import analyze

_RECORDED = Path(__file__).resolve().parents[1] / "tests/data/captures/h200_llama_block"
_EMPTY = "<!DOCTYPE html><title>empty</title><p>nothing"
# In order, as a table's style is computed when it first comes into view.
_MEASURED = """
const [navigation] = performance.getEntriesByType("navigation");
const drawn = performance.getEntriesByName("drawn")[0]?.startTime ?? navigation.loadEventEnd;
const tasks = await new Promise((resolve) => {
  const observer = new PerformanceObserver((list) => resolve(list.getEntries()));
  observer.observe({ type: "longtask", buffered: true });
  setTimeout(() => resolve([]), 200);
});
// Two of them: what an observer of what is in view finds is drawn in the second.
const frame = () => new Promise((resolve) =>
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve))));
const timed = async (action) => {
  await frame();
  const begun = performance.now();
  action();
  await frame();
  return performance.now() - begun;
};
const table = document.getElementById("kernel-table");
const input = document.querySelector('input[data-table="kernel-table"]');
return [
  navigation.domContentLoadedEventEnd, drawn,
  Math.max(0, ...tasks.map((task) => task.duration)),
  ...(table ? [
    await timed(() => table.scrollIntoView({ behavior: "instant" })),
    await timed(() => { input.value = "e"; input.dispatchEvent(new Event("input")); }),
    await timed(() => table.tHead.querySelectorAll("button")[2].click()),
    await timed(() => table.tBodies[0].rows[3].cells[2].click()),
  ] : []),
];
"""
# Runs in each page before its own script: when its plots are drawn.
_WATCH = """
document.addEventListener("DOMContentLoaded", async () => {
  await globalThis.plotsDrawn;
  performance.mark("drawn");
});
"""
_COLUMNS = ("usable", "drawn", "task", "view", "letter", "sort", "select")


def _measured(browser: Chromium, page: Path) -> list[float]:
    browser.open(page)
    return list(browser.evaluate(_MEASURED))


def main() -> None:
    """Make the pages, open each in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=20_000)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    made = analyze(many_kernels(options.kernels))
    large = msgspec.structs.replace(made, ranks=many_ranks(options.ranks), world_size=options.ranks)
    analyses = {"recorded": load_analysis(_RECORDED), "large": large}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pages = {"empty": folder / "empty.html"}
        pages["empty"].write_text(_EMPTY, encoding="utf-8")
        for label, analysis in analyses.items():
            begun = time.perf_counter()
            text = render_html(analysis)
            seconds = time.perf_counter() - begun
            pages[label] = folder / f"{label}.html"
            pages[label].write_text(text, encoding="utf-8")
            size = pages[label].stat().st_size
            print(f"{label:9} {size / 1e6:6.2f} MB, made in {seconds:.2f} s")
        times: dict[str, list[list[float]]] = {label: [] for label in pages}
        with started(folder / "profile") as browser:
            browser.before_each_page(_WATCH)
            for _ in range(options.rounds):
                for label, page in pages.items():
                    times[label].append(_measured(browser, page))
    empty = statistics.median(each[0] for each in times["empty"])
    print(f"\n{'ms':9}" + "".join(f"{column:>9}" for column in _COLUMNS))
    for label, found in times.items():
        medians = [statistics.median(column) for column in zip(*found, strict=True)]
        print(f"{label:9}" + "".join(f"{median:9.0f}" for median in medians))
        ratios = "".join(f"{median / empty:8.1f}x" for median in medians[:2])
        print(f"{'':9}{ratios} of an empty page")


if __name__ == "__main__":
    main()
