"""The drawings of pages as files of their own: SVG that any program can draw, and PNG."""

import re
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuprof.collectors.errors import CommandError, MissingDependencyError
from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.commands.compare import render
from gpuprof.reports import drawing_files
from gpuprof.reports.comparison.page import render_html as render_comparison
from gpuprof.reports.html.page import render_html
from gpuprof.reports.html.standalone import StandaloneDrawing, standalone_drawings
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.comparison.result import Comparison

DATA = Path(__file__).parents[1] / "data"
_SVG = "{http://www.w3.org/2000/svg}"
# What programs other than browsers do not know.
_UNKNOWN = ("var(", "color-mix", "href=", "<script", "vector-effect", "{ }", ":is(", ":hover")


@cache
def block_page() -> str:
    return render_html(load_analysis(DATA / "captures" / "h100_llama_block"))


@cache
def change() -> Comparison:
    sides = ("base", "head")
    return compare(*(load_analysis(DATA / "captures" / f"h100_attention_{s}") for s in sides))


PAGES: dict[str, Callable[[], str]] = {
    "block": block_page,
    "memory": lambda: render_html(
        analyze(open_trace(DATA / "memory_snapshot" / "out_of_memory.pickle.gz"))
    ),
    "compare": lambda: render_comparison(change()),
}


def parsed(drawing: StandaloneDrawing) -> ElementTree.Element:
    return ElementTree.fromstring(drawing.svg)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("block", {"roofline", "steps"}),
        ("memory", {"memory"}),
        ("compare", {"change", "roofline"}),
    ],
)
def test_each_drawing_of_a_page_is_a_document_that_needs_no_browser(
    page: str, names: set[str]
) -> None:
    drawings = standalone_drawings(PAGES[page]())

    assert names <= {drawing.name for drawing in drawings}
    assert len({drawing.name for drawing in drawings}) == len(drawings)
    for drawing in drawings:
        root = parsed(drawing)
        assert root.tag == f"{_SVG}svg"
        assert float(root.attrib["width"]) == drawing.width
        assert not [word for word in _UNKNOWN if word in drawing.svg]
        # Each class that is drawn with has a colour from the page's style.
        style = root.findtext(f"{_SVG}style") or ""
        assert re.search(r"(fill|stroke): #[0-9a-f]{6}", style)
        assert list(root.iter(f"{_SVG}text"))


def test_colours_and_marks_are_those_of_the_light_page_with_a_legend() -> None:
    (roofline,) = (d for d in standalone_drawings(block_page()) if d.name == "roofline")

    root = parsed(roofline)
    style = root.findtext(f"{_SVG}style") or ""
    for kind, colour in re.findall(r"--(class-\w+): (#\w+);", block_page())[:3]:
        if f'class="point {kind}"' in roofline.svg:
            assert f".point.{kind} {{ fill: {colour}; }}" in style.replace(f".mark.{kind}, ", "")
    words = [text.text for text in root.iter(f"{_SVG}text")]
    assert {"compute", "memory", "bf16 tensor 989 TFLOP/s"} <= set(words)
    marks = [path for path in root.iter(f"{_SVG}path") if "point" in path.get("class", "")]
    drawn = block_page().split('class="picture full"')[1].split("</svg>")[0]
    # The points, and the entries of the legend.
    assert len(marks) > drawn.count('<path class="point')


def test_a_comparison_is_one_drawing_under_its_sentence() -> None:
    svg = render(change(), ".svg", top=5).decode()

    root = ElementTree.fromstring(svg)
    words = " ".join(text.text or "" for text in root.iter(f"{_SVG}text"))
    assert words.startswith("Slower: step time 21.54 ms → 43.69 ms (+22.2 ms, +102.8%), mostly")
    assert "below the roof, memory" in words
    assert "only in the head" in words


def test_mixed_colours_are_worked_out_and_rules_of_the_page_are_left_out() -> None:
    style = """
    :root { --page: #ffffff; --ink: #112233; --sans: "A B", sans-serif; --bad: #ff0000; }
    @media (prefers-color-scheme: dark) { :root { --bad: #00ff00; } }
    svg.heat .shade-2 { fill: color-mix(in srgb, var(--bad) 22%, #ffffff); }
    svg.heat .shade-3, .tile .value { fill: var(--bad); } .heat rect:hover { fill: none; }
    """
    body = '<rect class="shade-2" width="3" height="3"/>'
    page = (
        f'<section id="a"><svg class="heat" viewBox="0 0 40 20" role="img">{body}</svg></section>'
    )
    (drawing,) = standalone_drawings(f"<style>{style}</style>{page}")

    rules = parsed(drawing).findtext(f"{_SVG}style") or ""
    # 22 % of red and 78 % of white.
    assert f".heat .shade-2 {{ fill: #ff{round(0.78 * 255):02x}{round(0.78 * 255):02x}; }}" in rules
    assert "shade-3" not in rules
    assert "tile" not in rules
    assert "hover" not in rules
    assert "font: 12.5px 'A B', sans-serif" in rules


def test_names_in_a_drawing_stay_text() -> None:
    page = '<section id="x"><svg class="picture full" viewBox="0 0 90 50" role="img"'
    page += ' aria-label="a"><text>&lt;script&gt;&amp;</text></svg></section>'
    (drawing,) = standalone_drawings(
        f"<style>:root {{ --page: #ffffff; --ink: #111111; --sans: sans-serif; }}</style>{page}"
    )

    assert [text.text for text in parsed(drawing).iter(f"{_SVG}text")] == ["<script>&"]


def test_a_png_is_twice_the_size_and_has_words_or_says_what_is_missing() -> None:
    (roofline,) = (d for d in standalone_drawings(block_page()) if d.name == "roofline")
    if not drawing_files._has_fonts():
        with pytest.raises(CommandError, match="no font"):
            drawing_files.drawing_bytes(roofline.svg, ".png")
        return

    picture = drawing_files.drawing_bytes(roofline.svg, ".png")

    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (round(2 * roofline.width), round(2 * roofline.height))
    without = re.sub(r"<text.*?</text>", "", roofline.svg, flags=re.DOTALL)
    assert drawing_files.drawing_bytes(without, ".png") != picture


def test_without_its_package_or_any_font_a_png_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawing_files._has_fonts.cache_clear()
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(MissingDependencyError, match=r"resvg-py is needed to write PNG: pip"):
        drawing_files.require_png()
    monkeypatch.setattr(drawing_files, "_render", lambda svg: b"the same, words or not")
    with pytest.raises(CommandError, match="no font was found"):
        drawing_files.require_png()
    drawing_files._has_fonts.cache_clear()
