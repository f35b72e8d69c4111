"""The reports of docs/gallery.md: pages for the site, and their pictures.

    python scripts/gallery.py

takes the pictures anew, those of docs/gallery and docs/report.png, which needs a Chromium. The site
itself has the pages (docs/site/conf.py).
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from gpuprof.collectors.opening import open_traces
from gpuprof.reports.comparison import page as comparison_page
from gpuprof.reports.html import page as report_page
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.work.attribution import attribute

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs" / "gallery"
_SIZE: Final = (1280, 900)
_SCROLL: Final = """
document.getElementById("%s").scrollIntoView({ behavior: "instant" });
await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
"""
# The picture of the README shows more of its page.
_REPORT_HEIGHT: Final = 1750


class GalleryEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One report."""

    paths: tuple[str, ...]
    compare: bool = False
    section: str = ""


def entries() -> dict[str, GalleryEntry]:
    """All reports by name."""
    content = (ROOT / "docs" / "site" / "gallery.toml").read_bytes()
    return msgspec.toml.decode(content, type=dict[str, GalleryEntry])


def write_pages(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write each page into `folder`, and yield its name and file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, entry in entries().items():
        file = folder / f"{name}.html"
        file.write_text(_page(entry), encoding="utf-8")
        yield name, file


def _page(entry: GalleryEntry) -> str:
    if entry.compare:
        base, head = (_analysis((path,)) for path in entry.paths)
        return comparison_page.render_html(compare(base, head))
    return report_page.render_html(_analysis(entry.paths))


def _analysis(paths: tuple[str, ...]) -> Analysis:
    return analyze(attribute(open_traces([ROOT / path for path in paths])))


def take_pictures() -> None:
    """Write the picture of each page."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from chromium import started

    width, height = _SIZE
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as temporary, started(Path(temporary, "chromium")) as browser:
        for name, file in write_pages(Path(temporary, "pages")):
            browser.open(file, width=width, height=height)
            if section := entries()[name].section:
                # Not by the address: what is drawn above it comes later.
                browser.evaluate(_SCROLL % section)
            (PICTURES / f"{name}.webp").write_bytes(browser.picture("webp"))
            if name == "h200_block":
                browser.open(file, width=width, height=_REPORT_HEIGHT)
                (ROOT / "docs" / "report.png").write_bytes(browser.picture("png"))


if __name__ == "__main__":
    take_pictures()
