"""How long ranges were open and what ran in them, against sums made by hand."""

import gzip
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import nsys
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.range_figures import RangeTime, RanInRange

DATA = Path(__file__).resolve().parents[1] / "data"


def times(build: CaptureBuilder) -> dict[str, RangeTime]:
    return {each.name: each for each in analyze(build.build()).range_times}


def test_a_range_without_device_work_has_its_time_and_its_operators(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.range("load data", 100, 400)
    parent = build.op("aten::stack", 110, 150)
    build.op("aten::cat", 120, 140, parent_id=parent)
    build.op("aten::randn", 160, 170)
    build.op("aten::randn", 390, 420)
    build.range("compute", 0, 60)
    found = times(build)
    assert list(found) == ["load data", "compute"]
    load = found["load data"]
    assert (load.passes, load.wall_ns, load.own_ns) == (1, 300, 300)
    assert (load.device_ns, load.pieces) == (0, 0)
    assert load.ran == (
        RanInRange(name="aten::stack", calls=1, host_ns=40),
        RanInRange(name="aten::randn", calls=2, host_ns=40),
    )
    compute = found["compute"]
    assert (compute.wall_ns, compute.device_ns, compute.pieces) == (60, 40, 1)
    assert compute.ran == (RanInRange(name="aten::mm", calls=1, device_ns=40),)


def test_nested_ranges_have_their_own_time_and_the_range_around_them(
    build: CaptureBuilder,
) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    for start in (0, 1000):
        build.range("step", start, start + 500)
        build.range("layer", start + 100, start + 200)
        build.range("layer", start + 200, start + 250)
        build.range("norm", start + 120, start + 130)
    build.range("norm", 1450, 1460)
    build.range("layer", 0, 80, thread=2)
    found = times(build)
    assert (found["step"].wall_ns, found["step"].own_ns) == (1000, 1000 - 300 - 10)
    assert (found["layer"].passes, found["layer"].wall_ns) == (5, 300 + 80)
    assert found["layer"].own_ns == 380 - 20
    # On another thread nothing is around it.
    assert found["layer"].parent == ""
    assert (found["norm"].passes, found["norm"].wall_ns, found["norm"].parent) == (3, 30, "")
    assert found["step"].parent == ""


def test_a_range_around_itself_counts_once(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.range("walk", 0, 100)
    build.range("walk", 20, 60)
    (walk,) = times(build).values()
    assert (walk.passes, walk.wall_ns, walk.own_ns) == (2, 100, 100)


def test_only_what_lies_in_profiled_steps_counts(build: CaptureBuilder) -> None:
    build.step("timed", 0, 100)
    build.step("profiled", 100, 200)
    build.step("profiled", 300, 400)
    build.mm(110, 150)
    build.kernel(120, 150, 190)
    build.mm(310, 330)
    build.kernel(320, 350, 380)
    build.range("epoch", 50, 350)
    build.range("part", 150, 220)
    build.range("before", 0, 40)
    found = times(build)
    assert set(found) == {"epoch", "part"}
    assert (found["epoch"].wall_ns, found["epoch"].own_ns) == (150, 100)
    assert (found["part"].wall_ns, found["part"].parent) == (50, "epoch")


def test_a_start_end_pair_holds_the_work_of_all_threads(build: CaptureBuilder) -> None:
    build.range("pushed", 0, 100)
    build.range("request", 20, 300, across_threads=True)
    build.range("request", 250, 400, thread=3, across_threads=True)
    build.mm(30, 60)
    build.kernel(40, 1000, 1010)
    build.mm(110, 150, thread=2)
    build.kernel(120, 1010, 1030, thread=2)
    build.mm(500, 550)
    build.kernel(510, 1030, 1070)
    found = times(build)
    request = found["request"]
    assert request.across_threads
    assert (request.passes, request.wall_ns, request.own_ns) == (2, 380, 280 + 150)
    assert (request.device_ns, request.pieces, request.parent) == (30, 2, "")
    # It lies in no other, and no other in it. Work of a thread without ranges counts to the
    # ranges pushed on the other one.
    assert (found["pushed"].own_ns, found["pushed"].device_ns) == (100, 10)


def test_of_very_many_names_the_longest_are_kept(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    for number in range(400):
        build.range(f"iteration {number}", 1000 * number, 1000 * number + number + 1)
    found = list(times(build).values())
    assert [each.wall_ns for each in found] == list(range(400, 100, -1))


def test_what_the_host_did_by_itself_is_no_range_of_the_program(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.range("garbage collection", 0, 60, domain="gpuprof")
    build.range("garbage collection", 0, 40)
    analysis = analyze(build.build())
    assert [(each.domain, each.wall_ns) for each in analysis.range_times] == [("region", 40)]
    assert [point.detail for point in analysis.ranges] == ["region"]


def test_where_device_work_was_lost_its_time_is_unknown(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 100)
    build.mm(0, 50)
    build.kernel(10, 20, 40)
    build.kernel(30, 50, 60)
    build.rows["kernels"].pop()
    build.range("part", 0, 60)
    (part,) = times(build).values()
    assert (part.wall_ns, part.device_ns, part.pieces) == (60, None, None)


@pytest.mark.parametrize("seed", range(5))
def test_times_are_those_of_counting_every_nanosecond(build: CaptureBuilder, seed: int) -> None:
    chance = random.Random(seed)
    steps = [(0, 120), (120, 200), (240, 300)]
    for start, end in steps:
        build.step("profiled", start, end)
    build.mm(0, 5)
    build.kernel(1, 2, 3)
    pushed: list[tuple[str, int, int]] = []

    def push(start: int, end: int, depth: int) -> None:
        name = chance.choice("abc")
        pushed.append((name, start, end))
        build.range(name, start, end)
        at = start + chance.randint(0, 5)
        while depth < 4 and at < end - 1:
            length = chance.randint(1, end - at)
            push(at, at + length, depth + 1)
            at += length + chance.randint(0, 10)

    for at in range(0, 320, 80):
        push(at + chance.randint(0, 20), at + chance.randint(40, 80), 0)
    inside = {time for start, end in steps for time in range(start, end)}
    found = times(build)
    for name in {name for name, _, _ in pushed}:
        spans = [(start, end) for each, start, end in pushed if each == name]
        opened = {time for start, end in spans for time in range(start, end)} & inside
        assert found[name].wall_ns == len(opened)
    # Each moment of a thread is in one range itself.
    opened = {time for _, start, end in pushed for time in range(start, end)} & inside
    assert sum(each.own_ns for each in found.values()) == len(opened)


def test_ranges_of_an_nsys_export_are_as_long_as_it_says(tmp_path: Path) -> None:
    export = tmp_path / "h200_block.sqlite"
    packed = DATA / "nsys" / "h200_block.sqlite.gz"
    export.write_bytes(gzip.decompress(packed.read_bytes()))
    with closing(sqlite3.connect(export)) as database:
        told = database.execute(
            "SELECT coalesce(text, value), count(*), sum(end - start) FROM NVTX_EVENTS "
            "LEFT JOIN StringIds ON StringIds.id = textId WHERE eventType = 59 GROUP BY 1"
        ).fetchall()
    capture = nsys.read(export)
    found = {each.name: each for each in analyze(capture).range_times}
    assert {(each.name, each.passes, each.wall_ns) for each in found.values()} == set(told)
    # The backward pass is launched from a thread of autograd's, which has ranges of cuBLAS alone.
    # Each step is its three parts, to the nanosecond.
    parts = [found[name] for name in ("forward", "backward", "optimizer")]
    steps = [found[name] for name in found if name.startswith("step")]
    for figure in ("device_ns", "pieces"):
        assert sum(getattr(part, figure) for part in parts) == sum(
            getattr(step, figure) for step in steps
        )
    forward, backward, _ = parts
    assert backward.device_ns is not None
    assert forward.device_ns is not None
    assert 1.5 * forward.device_ns < backward.device_ns < 3 * forward.device_ns
