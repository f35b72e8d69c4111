"""The rooflines of two captures in one drawing: places, arrows, ceilings of each."""

import math
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from gpuprof.profiler.captures import load_analysis
from gpuprof.reports.comparison.page import render_html
from gpuprof.reports.comparison.roofline_picture import (
    MoveVerdict,
    TwoRooflines,
    two_rooflines,
    verdict_of,
)
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.comparison.kernel_changes import KernelChange, KernelSide
from gpuprof.roofline.comparison.result import Comparison

CAPTURES = Path(__file__).parents[1] / "data" / "captures"


@cache
def two_devices() -> Comparison:
    """The same block on an H100 and on an H200."""
    return compare(*(load_analysis(CAPTURES / f"{gpu}_llama_block") for gpu in ("h100", "h200")))


@cache
def attention() -> Comparison:
    """Fused attention, and the same written out: kernels that are gone, and new ones."""
    sides = ("base", "head")
    return compare(*(load_analysis(CAPTURES / f"h100_attention_{side}") for side in sides))


def value_at(drawing: TwoRooflines, x: float) -> float:
    """FLOP per byte at `x`, read off the outermost ticks."""
    first, last = drawing.area.x_ticks[0], drawing.area.x_ticks[-1]
    low, high = math.log10(float(first.text)), math.log10(float(last.text))
    return float(10 ** (low + (x - first.at) / (last.at - first.at) * (high - low)))


def test_both_ends_of_a_move_stand_at_the_intensity_of_their_side() -> None:
    found = two_devices()
    base, head = (load_analysis(CAPTURES / f"{gpu}_llama_block") for gpu in ("h100", "h200"))
    known = [
        {(p.name, p.op_detail, p.phase, p.op): p.arithmetic_intensity for p in one.kernels}
        for one in (base, head)
    ]
    checked = 0
    for drawing in two_rooflines(found, 500):
        for move in drawing.moves:
            change = found.kernels[move.index]
            for spot, side, points in zip(
                (move.base, move.head), (change.base, change.head), known, strict=True
            ):
                if spot is None or side is None or side.others:
                    continue
                at = points[side.name, side.shapes, side.phase, side.op]
                assert value_at(drawing, spot.x) == pytest.approx(at, rel=0.05)
                checked += 1
    assert checked > 40


@pytest.mark.parametrize("made", [two_devices, attention])
def test_all_that_is_drawn_is_inside(made: object) -> None:
    assert callable(made)
    for drawing in two_rooflines(made(), 500):
        area = drawing.area
        spots = [spot for move in drawing.moves for spot in (move.base, move.head) if spot]
        ends = [(one.drawn.x0, one.drawn.y0) for one in drawing.lines]
        ends += [(one.drawn.x1, one.drawn.y1) for one in drawing.lines]
        for x, y in (*ends, *((spot.x, spot.y) for spot in spots)):
            assert area.left - 0.1 <= x <= area.right + 0.1
            assert area.top - 0.1 <= y <= area.bottom + 0.1


def test_an_arrow_goes_from_the_base_to_the_head() -> None:
    (drawing, _) = two_rooflines(two_devices(), 500)
    arrows = [move for move in drawing.moves if move.shaft]
    assert len(arrows) > 5
    for move in arrows:
        assert move.base is not None
        assert move.head is not None
        x0, y0, x1, y1 = map(float, re.findall(r"[\d.]+", move.shaft))
        tip_x, tip_y = map(float, re.findall(r"[\d.]+", move.point)[:2])
        to_head = math.hypot(move.head.x - tip_x, move.head.y - tip_y)
        assert to_head <= move.head.radius + 0.2
        assert math.hypot(x0 - move.base.x, y0 - move.base.y) <= move.base.radius + 0.2
        assert math.hypot(x1 - tip_x, y1 - tip_y) == pytest.approx(7, abs=0.2)


def test_ceilings_that_both_have_stand_there_once_and_others_say_whose_they_are() -> None:
    (drawing, _) = two_rooflines(two_devices(), 500)
    labels = {one.drawn.label: one.side for one in drawing.lines if one.drawn.label}

    assert labels["base: DRAM 3.35 TB/s"] == "base"
    assert labels["head: DRAM 4.80 TB/s"] == "head"
    assert labels["bf16 tensor 989 TFLOP/s"] == ""
    (same, _) = two_rooflines(compare_with_itself(), 500)
    assert {one.side for one in same.lines} == {""}


def compare_with_itself() -> Comparison:
    block = load_analysis(CAPTURES / "h200_llama_block")
    return compare(block, block)


def test_kernels_of_one_side_alone_are_marked_and_what_did_not_change_is_told_apart() -> None:
    (drawing, _) = two_rooflines(attention(), 500)
    ends = {
        move.verdict: (move.base is None, move.head is None)
        for move in drawing.moves
        if move.verdict in ("new", "gone")
    }
    assert ends == {"new": (True, False), "gone": (False, True)}
    (same, _) = two_rooflines(compare_with_itself(), 500)
    assert {move.verdict for move in same.moves} == {"same"}
    assert not any(move.shaft for move in same.moves)


def side(device_ns: float, **figures: float | None) -> KernelSide:
    known = {"flops": 1e9, "bytes": 1e8, "roof_fraction": None} | figures
    return msgspec.convert(
        {
            "name": "k",
            "op": "",
            "shapes": "",
            "phase": "",
            "kind": "kernel",
            "calls": 1.0,
            "device_ns": device_ns,
            "bottleneck": "memory",
            "roof": "",
            **known,
        },
        KernelSide,
    )


@pytest.mark.parametrize(
    ("base_ns", "head_ns", "verdict"),
    [
        (1e6, 1.2e6, "slower"),
        (1.2e6, 1e6, "faster"),
        (1e6, 1.005e6, "same"),
        (1e3, 2e3, "same"),
        (None, 1e6, "new"),
        (1e6, None, "gone"),
    ],
)
def test_a_verdict_needs_more_than_what_runs_differ_by(
    base_ns: float | None, head_ns: float | None, verdict: MoveVerdict
) -> None:
    base, head = (None if ns is None else side(ns) for ns in (base_ns, head_ns))
    change = KernelChange(
        match="name",
        base=base,
        head=head,
        change_ns=(head_ns or 0.0) - (base_ns or 0.0),
        by_count_ns=0.0,
        by_mean_ns=0.0,
    )
    assert verdict_of(change, 1e7) == verdict


def with_kernels(comparison: Comparison, *changes: KernelChange) -> Comparison:
    return msgspec.structs.replace(comparison, kernels=changes)


def a_change(before: KernelSide | None, after: KernelSide | None) -> KernelChange:
    return KernelChange(
        match="name", base=before, head=after, change_ns=5.0, by_count_ns=0.0, by_mean_ns=5.0
    )


@pytest.mark.parametrize("figures", [{"bytes": 0.0}, {"flops": 0.0}, {"flops": None}])
def test_what_has_no_place_is_counted_and_not_drawn(figures: dict[str, float | None]) -> None:
    block = two_devices()
    without = a_change(side(10, **figures), side(15, **figures))
    assert two_rooflines(with_kernels(block, without), 500) == ()

    half = a_change(side(10, **figures), side(15))
    (drawing, _) = two_rooflines(with_kernels(block, half, without), 500)
    (move,) = drawing.moves
    assert (move.base, move.shaft) == (None, "")
    assert "1 of 2 kernels (50.0% of device time): 1 without arithmetic" in drawing.note


def test_one_point_without_any_ceiling_is_drawn() -> None:
    block = two_devices()
    bare = msgspec.structs.replace(
        with_kernels(block, a_change(side(10), side(15))),
        base=msgspec.structs.replace(block.base, ceilings=(), roof_source=None),
        head=msgspec.structs.replace(block.head, ceilings=(), roof_source=None),
    )
    for drawing in two_rooflines(bare, 500):
        assert drawing.lines == ()
        assert len(drawing.moves) == 1


class _Titles(HTMLParser):
    """The tooltips of the moves, and the links around them."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.titles: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and (given.get("class") or "").startswith("move "):
            self.links.append(given["href"] or "")
        self.inside = tag == "title"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.titles.append(data)


def test_the_page_names_both_ends_and_links_to_rows_and_names_stay_text(
    training_analysis: Analysis,
) -> None:
    kernels = training_analysis.kernels
    evil = msgspec.structs.replace(
        next(k for k in kernels if k.flops_per_s), name="<script>alert(1)</script>"
    )
    other = msgspec.structs.replace(training_analysis, kernels=(evil, *kernels[1:]))
    text = render_html(compare(other, other))
    page = _Titles()
    page.feed(text)

    assert "<script>alert(1)" not in text
    assert page.links
    assert all(f'<tr id="{link.removeprefix("#")}"' in text for link in page.links)
    assert any("base: " in title and "\nhead: " in title for title in page.titles)
