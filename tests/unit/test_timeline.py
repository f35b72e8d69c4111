"""The time line of a step: its lanes, compared with small calculations of their own."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto, nsys, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.rank_figures import (
    ClockAlignment,
    RankClock,
    RankFigures,
    RanksAnalysis,
    RankStep,
    Straggler,
)
from gpuprof.roofline.ranks.summarise import all_summaries
from gpuprof.roofline.timeline import find
from gpuprof.roofline.timeline.merging import fair_shares, merged_pieces
from gpuprof.roofline.timeline.ranks import JobRanks
from gpuprof.roofline.timeline.rows import free_rows
from gpuprof.roofline.timeline_figures import Timeline, TimelineLane, TimelineStep
from gpuprof.roofline.work.attribution import attribute

DATA = Path(__file__).resolve().parents[1] / "data"
# Training, a replayed graph, a CPU, ranks, clocks that overlap, another tool's, and runs of ours.
RECORDINGS = [
    "kineto/h100_block_train_bf16.json.gz",
    "kineto/h100_block_cudagraph.json.gz",
    "kineto/cpu-only.json",
    "kineto/nccl-straggler-rank0.json",
    "kineto/overlap-union.json",
    "kineto/gpu-annotation-and-sync.json",
    "nsys/h200_block.sqlite.gz",
    "captures/h200_llama_block",
    "captures/h100_cuda_graph",
]
Span = tuple[int, int]


@cache
def recording(name: str) -> Capture:
    path = DATA / name
    if path.is_dir():
        return attribute(storage.load(path))
    return attribute((nsys if name.startswith("nsys") else kineto).read(path))


@cache
def analysed(name: str) -> Analysis:
    return analyze(recording(name))


def timeline_of(capture: Capture) -> Timeline:
    found = analyze(capture).timeline
    assert found is not None
    return found


def lanes(step: TimelineStep, kind: str) -> list[TimelineLane]:
    return [lane for lane in step.lanes if lane.kind == kind]


def spans(lane: TimelineLane) -> list[Span]:
    return [
        (start, start + length)
        for start, length in zip(lane.starts_ns, lane.lengths_ns, strict=True)
    ]


def names(found: Timeline, lane: TimelineLane) -> list[str]:
    return [found.labels[label].name for label in lane.labels]


def union(parts: list[Span], low: int, high: int) -> list[Span]:
    """What `parts` cover between two times, without overlap: one at a time, in order."""
    covered: list[Span] = []
    for start, end in sorted(parts):
        start, end = max(start, low), min(end, high)
        if covered and start <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(covered[-1][1], end))
        elif end > start:
            covered.append((start, end))
    return covered


def length(parts: list[Span]) -> int:
    return sum(end - start for start, end in parts)


@pytest.mark.parametrize("name", RECORDINGS)
def test_pieces_and_gaps_cover_each_step(name: str) -> None:
    capture, found = recording(name), analysed(name).timeline
    assert found is not None
    for step in found.steps:
        low, high = step.start_ns, step.start_ns + step.length_ns
        every: list[Span] = []
        streams = {(lane.device, lane.context, lane.stream) for lane in lanes(step, "stream")}
        for device, context, stream in streams:
            own = [
                lane
                for lane in lanes(step, "stream")
                if (lane.device, lane.context, lane.stream) == (device, context, stream)
            ]
            pieces = [part for lane in own for part in spans(lane)]
            recorded = capture.kernels.filter(
                pl.col("device").eq_missing(device)
                & pl.col("context").eq_missing(context)
                & pl.col("stream").eq_missing(stream)
            )
            kernels = list(recorded.select("start_ns", "end_ns").iter_rows())
            expected = length(union(kernels, low, high))
            assert length(union(pieces, 0, step.length_ns)) == expected
            every += pieces
            # What is in a lane follows each other, and nothing in the window is missing.
            for lane in own:
                assert all(a[1] <= b[0] for a, b in pairwise(spans(lane)))
            inside = [1 for start, end in kernels if end > low - step.lead_ns and start < high]
            assert sum(lane.events for lane in own) == len(inside)
        idle = [part for lane in lanes(step, "idle") for part in spans(lane)]
        # Nothing runs in it, on any stream, and together they are the step.
        busy = length(union(every, 0, step.length_ns))
        assert length(idle) + busy == step.length_ns
        assert length(union(every + idle, 0, step.length_ns)) == step.length_ns


@pytest.mark.parametrize("name", RECORDINGS)
def test_lanes_are_bounded_and_refer_to_what_is_there(name: str) -> None:
    analysis = analysed(name)
    found = analysis.timeline
    assert found is not None
    for step in found.steps:
        assert len(step.lanes) <= find.MOST_LANES
        assert sum(len(lane.starts_ns) for lane in step.lanes) <= find.MOST_PIECES
        for lane in step.lanes:
            assert list(lane.starts_ns) == sorted(lane.starts_ns)
            assert all(0 <= label < len(found.labels) for label in lane.labels)
            for piece, lane_number in zip(lane.labels, lane.launched_from, strict=False):
                assert found.labels[piece].kind not in ("call", "range")
                assert lane_number is None or step.lanes[lane_number].kind == "call"
    for label in found.labels:
        if label.point is not None:
            point = analysis.kernels[label.point]
            assert (point.name, point.kind) == (label.name, label.kind)


def test_the_idle_lane_agrees_with_the_causes_of_the_analysis() -> None:
    analysis = analysed("captures/h200_llama_block")
    found, idle = analysis.timeline, analysis.idle
    assert found is not None
    assert idle is not None
    for step in found.steps:
        lane = lanes(step, "idle")[0]
        by_class: dict[str, int] = {}
        for label, piece_ns in zip(lane.labels, lane.lengths_ns, strict=True):
            kind = found.labels[label].waits
            by_class[kind] = by_class.get(kind, 0) + piece_ns
        profiled = [
            {part.kind: part.nanoseconds for part in parts} for parts in idle.profiled_steps
        ]
        assert by_class in profiled


def test_the_typical_step_is_nearest_to_the_median_and_the_slowest_is_the_longest(
    build: CaptureBuilder,
) -> None:
    at = 0
    for number, step_ns in enumerate((1_000, 9_000, 3_000, 2_000, 4_000)):
        build.step("profiled", at, at + step_ns)
        build.kernel(at + 10, at + 20, at + 500, f"kernel {number}")
        at += step_ns
    found = timeline_of(attribute(build.build()))
    assert [(step.role, step.index, step.length_ns) for step in found.steps] == [
        ("typical", 2, 3_000),
        ("slowest", 1, 9_000),
    ]
    assert found.of_steps == 5
    assert names(found, lanes(found.steps[0], "stream")[0]) == ["kernel 2"]


def test_steps_of_one_length_are_one_step(build: CaptureBuilder) -> None:
    for at in (0, 1_000, 2_000):
        build.step("profiled", at, at + 1_000)
        build.kernel(at + 10, at + 20, at + 500)
    assert [step.role for step in timeline_of(attribute(build.build())).steps] == ["typical"]


def test_two_streams_have_a_lane_each_and_a_gap_needs_both(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1_000)
    build.kernel(5, 100, 400, "left")
    build.kernel(6, 300, 700, "right", stream=8)
    found = timeline_of(attribute(build.build()))
    (step,) = found.steps
    assert [(lane.stream, spans(lane)) for lane in lanes(step, "stream")] == [
        (7, [(100, 400)]),
        (8, [(300, 700)]),
    ]
    idle = [part for lane in lanes(step, "idle") for part in spans(lane)]
    assert union(idle, 0, 1_000) == [(0, 100), (700, 1_000)]


def test_where_work_of_another_step_still_runs_a_device_is_not_idle(build: CaptureBuilder) -> None:
    # The step before was not profiled to its end, and its work reaches into this one.
    build.step("warmup", 0, 1_000)
    build.kernel(5, 100, 1_300, "earlier")
    build.step("profiled", 1_000, 2_000)
    build.kernel(1_005, 1_500, 1_800, "own")
    (step,) = timeline_of(attribute(build.build())).steps
    low = step.start_ns
    idle = [part for lane in lanes(step, "idle") for part in spans(lane)]
    work = [part for lane in lanes(step, "stream") for part in spans(lane)]
    assert (1_300 - low, 1_500 - low) in union(idle, 0, step.length_ns)
    assert length(idle) + length(union(work, 0, step.length_ns)) == step.length_ns


def test_what_overlaps_in_a_stream_stands_in_a_row_below(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1_000)
    for start, end in ((100, 400), (200, 300), (350, 500), (450, 600)):
        build.kernel(5, start, end)
    (step,) = timeline_of(attribute(build.build())).steps
    assert [(lane.row, spans(lane)) for lane in lanes(step, "stream")] == [
        (0, [(100, 400), (450, 600)]),
        (1, [(200, 300), (350, 500)]),
    ]


def test_a_kernel_knows_its_launch_operator_module_and_line(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1_000)
    place = {"module": "layers.0.query", "file": "train.py", "line": 12}
    build.op("aten::linear", 90, 200, **place)
    build.mm(100, 180, parent_id=0, **place)
    build.kernel(120, 400, 700, "gemm")
    build.range("forward", 80, 250)
    found = timeline_of(attribute(build.build()))
    (step,) = found.steps
    (stream,) = lanes(step, "stream")
    label = found.labels[stream.labels[0]]
    assert (label.operator, label.module, label.place) == (
        "aten::mm",
        "layers.0.query",
        "train.py:12",
    )
    assert stream.launched_ns == (120,)
    (call,) = stream.launched_from
    assert call is not None
    assert (step.lanes[call].kind, spans(step.lanes[call])) == ("call", [(120, 121)])
    assert [(lane.kind, lane.row, names(found, lane)) for lane in step.lanes[:5]] == [
        ("range", 0, ["forward"]),
        ("module", 0, ["layers"]),
        ("module", 1, ["layers.0"]),
        ("module", 2, ["layers.0.query"]),
        ("operator", 0, ["aten::linear"]),
    ]


def test_visits_of_a_module_are_apart_where_another_is_between(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1_000)
    for start, module in ((0, "a.x"), (20, "a.x"), (40, "b"), (60, "a.y")):
        build.op("aten::relu", start, start + 10, module=module)
    (step,) = timeline_of(attribute(build.build())).steps
    first, second = lanes(step, "module")
    assert spans(first) == [(0, 30), (40, 50), (60, 70)]
    assert spans(second) == [(0, 30), (60, 70)]


def test_modules_inside_of_a_compiled_region_are_shown(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1_000)
    region = build.op("Torch-Compiled Region: 0/0", 0, 100, module="net")
    build.op("aten::mm", 10, 20, module="net.0", parent_id=region)
    build.op("aten::relu", 20, 30, module="net.0", parent_id=region)
    # It lies in another module's operator, which goes on behind it.
    outer = build.op("aten::mm", 40, 90, module="net.1", parent_id=region)
    build.op("aten::add", 50, 60, module="net.2", parent_id=outer)
    found = timeline_of(attribute(build.build()))
    first, second = lanes(found.steps[0], "module")
    assert spans(first) == [(0, 100)]
    assert list(zip(names(found, second), spans(second), strict=True)) == [
        ("net.0", (10, 30)),
        ("net.1", (40, 50)),
        ("net.2", (50, 60)),
    ]


def test_a_call_that_waits_says_so(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1_000_000)
    build.kernel(1_000, 5_000, 400_000)
    build.rows["launches"].append(
        {
            "name": "cudaStreamSynchronize",
            "thread": 1,
            "start_ns": 10_000,
            "end_ns": 401_000,
            "correlation": 99,
        }
    )
    found = timeline_of(attribute(build.build()))
    (call,) = lanes(found.steps[0], "call")
    assert [found.labels[label].waits for label in call.labels] == ["", "synchronisation"]


def test_work_that_was_launched_in_the_step_before_has_its_launch_in_view(
    build: CaptureBuilder,
) -> None:
    # The host is a step ahead.
    for number, at in enumerate((0, 1_000, 2_000, 3_000)):
        build.step("profiled", at, at + 1_000)
        build.kernel(at + 100, at + 1_100, at + 2_000, f"kernel {number}")
    found = timeline_of(attribute(build.build()))
    step = found.steps[0]
    assert found.definition == "device period"
    # By at most the length of the step.
    assert 0 < step.lead_ns <= step.length_ns
    (stream,) = lanes(step, "stream")
    own = [
        launched
        for start, launched in zip(stream.starts_ns, stream.launched_ns, strict=True)
        if start >= 0
    ]
    assert own == [-step.lead_ns]


def test_without_steps_all_is_one(build: CaptureBuilder) -> None:
    build.kernel(0, 100, 200)
    build.kernel(5, 500, 900)
    (step,) = timeline_of(attribute(build.build())).steps
    assert (step.index, step.start_ns, step.length_ns) == (None, 100, 800)


def test_nothing_is_shown_where_nothing_was_profiled(build: CaptureBuilder) -> None:
    assert analyze(attribute(build.build())).timeline is None
    build.step("timed", 0, 1_000, device_ns=900)
    assert analyze(attribute(build.build())).timeline is None


def test_on_a_cpu_leaf_operators_are_the_work(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1_000)
    row = {"kind": "op", "name": "aten::mm", "device": 0, "stream": 1, "start_ns": 100}
    build.rows["kernels"].append({**row, "end_ns": 600, "op_id": build.mm(100, 600)})
    found = timeline_of(attribute(build.build(Device(index=0, kind="cpu", name="x"))))
    (step,) = found.steps
    (stream,) = lanes(step, "stream")
    assert (spans(stream), stream.launched_ns) == ([(100, 600)], ())
    assert found.labels[stream.labels[0]].kind == "op"
    idle = [part for lane in lanes(step, "idle") for part in spans(lane)]
    assert union(idle, 0, 1_000) == [(0, 100), (600, 1_000)]


def test_a_range_that_never_ended_reaches_to_the_end(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1_000)
    build.kernel(5, 100, 400)
    build.range("open", 50, 60)
    build.rows["ranges"][-1]["end_ns"] = None
    (step,) = timeline_of(attribute(build.build())).steps
    assert spans(lanes(step, "range")[0]) == [(50, 1_000)]


def events(count: int, seed: int) -> pl.DataFrame:
    """Events that do not overlap, of very different lengths and distances."""
    chosen = random.Random(seed)
    rows, at = [], 0
    for _ in range(count):
        at += round(10 ** chosen.uniform(0, 4))
        end = at + round(10 ** chosen.uniform(0, 6))
        rows.append((at, end, chosen.randrange(5)))
        at = end
    found = pl.DataFrame(rows, schema=["start_ns", "end_ns", "label"], orient="row")
    return found.with_columns(rank_wait_ns=pl.lit(1, pl.Int64))


def test_as_many_pieces_stay_as_there_is_room_for() -> None:
    # All is done in a hundredth of the time.
    starts = [at for burst in range(50) for at in range(burst * 10**6, burst * 10**6 + 10**4, 50)]
    every = pl.DataFrame({"start_ns": starts}).with_columns(
        end_ns=pl.col("start_ns") + 20, label=pl.lit(0), rank_wait_ns=pl.lit(None, pl.Int64)
    )
    assert 1_000 < merged_pieces(every, 4_000).height <= 4_000


@pytest.mark.parametrize(("count", "most"), [(10, 10), (5_000, 300), (5_000, 2), (3, 1)])
def test_merged_pieces_keep_all_time_and_the_longest_events(count: int, most: int) -> None:
    every = events(count, seed=count + most)
    pieces = merged_pieces(every, most)
    assert pieces.height <= most
    assert pieces["count"].sum() == pieces["rank_wait_ns"].sum() == count
    lengths = every["end_ns"] - every["start_ns"]
    assert pieces["busy_ns"].sum() == lengths.sum()
    assert (pieces["busy_ns"] <= pieces["end_ns"] - pieces["start_ns"]).all()
    assert (pieces["end_ns"][:-1] <= pieces["start_ns"][1:]).all()
    # The label of each piece is that of most of its time.
    for start, end, label in pieces.select("start_ns", "end_ns", "label").iter_rows():
        own = every.filter((pl.col("start_ns") >= start) & (pl.col("end_ns") <= end))
        times: dict[int, int] = {}
        for first, last, each in own.select("start_ns", "end_ns", "label").iter_rows():
            times[each] = times.get(each, 0) + last - first
        assert times[label] == max(times.values())
    if most == 300:
        single = pieces.filter(pl.col("count") == 1)
        shortest = (pieces.filter(pl.col("count") > 1)["busy_ns"]).max()
        assert isinstance(shortest, int)
        assert set(lengths.filter(lengths > shortest)) <= set(single["busy_ns"])


def test_lanes_share_the_room_fairly() -> None:
    assert fair_shares([5, 100, 3, 100], 58) == [5, 25, 3, 25]
    assert fair_shares([5, 1], 58) == [5, 1]
    assert fair_shares([], 58) == []


def test_rows_are_the_depths_of_what_nests() -> None:
    start = np.array([0, 1, 2, 5, 20, 20])
    end = np.array([10, 4, 3, 6, 30, 25])
    assert free_rows(start, end).tolist() == [0, 1, 2, 1, 0, 1]


def many_kernels(build: CaptureBuilder, count: int) -> Iterator[Any]:
    build.step("profiled", 0, 10 * count)
    for number in range(count):
        yield build.kernel(10 * number, 10 * number + 3, 10 * number + 6 + number % 3, f"k{number}")


def test_too_many_pieces_and_labels_are_merged(
    build: CaptureBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "MOST_PIECES", 60)
    monkeypatch.setattr(find, "MOST_LABELS", 10)
    list(many_kernels(build, 500))
    found = timeline_of(attribute(build.build()))
    (step,) = found.steps
    assert sum(len(lane.starts_ns) for lane in step.lanes) <= 60
    assert len(found.labels) <= 10 + 3
    (stream,) = lanes(step, "stream")
    assert (stream.events, sum(stream.busy_ns)) == (500, sum(3 + n % 3 for n in range(500)))
    assert {found.labels[label].kind for label in stream.labels} == {"kernel"}


def test_lanes_without_room_are_counted(
    build: CaptureBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "MOST_LANES", 3)
    build.step("profiled", 0, 1_000)
    build.kernel(5, 100, 400)
    for thread in (2, 3, 4):
        build.op("aten::relu", 10, 20, thread=thread)
    (step,) = timeline_of(attribute(build.build())).steps
    assert [lane.kind for lane in step.lanes] == ["call", "stream", "idle"]
    assert step.left_out == 3


LATER_NS = 5 * 10**9


@cache
def four_ranks() -> Capture:
    """Recorded ranks, the last of which is 5 s ahead by its own clock."""
    capture = recording("ranks/gloo4_ddp_work")
    later = pl.when(pl.col("rank") == 3).then(LATER_NS).otherwise(0)
    tables = {
        name: frame.with_columns(
            pl.col(column) + later
            for column in ("start_ns", "end_ns", "time_ns")
            if column in frame.columns
        )
        for name, frame in capture.tables().items()
    }
    return replace(capture, **tables)


@cache
def four_ranks_timeline() -> Timeline:
    return timeline_of(four_ranks())


def of_rank(step: TimelineStep, rank: int | None) -> list[TimelineLane]:
    return [lane for lane in lanes(step, "stream") if lane.rank == rank]


def test_other_ranks_stand_beside_at_the_same_time() -> None:
    capture, found = four_ranks(), four_ranks_timeline()
    assert [(each.rank, each.role) for each in found.ranks][-1] == (3, "straggler")
    # Not all leave a collective at once here, but within some milliseconds, and not 5 s.
    for step in found.steps:
        first, last = (of_rank(step, rank) for rank in (None, 3))
        assert sum(map(len, map(spans, first))) > 10
        assert sum(map(len, map(spans, last))) > 10
        recorded = capture.kernels.filter(pl.col("rank") == 3)["start_ns"].to_list()
        for lane in last:
            assert not lane.launched_ns
            distances = [
                min(abs(start + step.start_ns + LATER_NS - each) for each in recorded)
                for start in lane.starts_ns
            ]
            assert max(distances) < 2_000_000
    # Each collective waits on each rank for what it lasts longer there than on any other.
    numbered = capture.kernels.filter(kind="collective").with_columns(
        lasts=pl.col("end_ns") - pl.col("start_ns"),
        nth=pl.int_range(pl.len()).over("rank", order_by="start_ns"),
    )
    waits = numbered.select("rank", wait=pl.col("lasts") - pl.col("lasts").min().over("nth"))
    assert not any(lane.waited_ns for lane in of_rank(found.steps[0], 3))
    for rank in (0, 1):
        expected = set(waits.filter(rank=rank)["wait"])
        shown = [
            waited
            for lane in of_rank(found.steps[0], rank or None)
            for waited, label in zip(lane.waited_ns, lane.labels, strict=False)
            if found.labels[label].kind == "collective"
        ]
        assert shown
        assert set(shown) <= expected


def test_of_ranks_without_tables_collectives_are_shown() -> None:
    capture, whole = four_ranks(), four_ranks_timeline()
    found = analyze(capture.rank(0), summaries=all_summaries(capture)).timeline
    assert found is not None
    assert [each.rank for each in found.ranks if each.collectives_only] == [1, 2, 3]

    def collectives(timeline: Timeline, rank: int) -> set[Span]:
        return {
            span
            for lane in of_rank(timeline.steps[0], rank)
            for span, label in zip(spans(lane), lane.labels, strict=True)
            if timeline.labels[label].kind == "collective"
        }

    for rank in (1, 2, 3):
        assert collectives(found, rank) == collectives(whole, rank) != set()
        assert sum(len(spans(lane)) for lane in of_rank(found.steps[0], rank)) == len(
            collectives(found, rank)
        )


def rank_figures(rank: int, own_ns: int, wait_ns: int) -> RankFigures:
    step = RankStep(
        index=0, length_ns=own_ns + wait_ns, own_ns=own_ns, launch_ns=0, wait_ns=wait_ns
    )
    return RankFigures(rank=rank, steps=(step,))


def test_of_many_ranks_those_that_matter_are_shown() -> None:
    ranks = [rank_figures(rank, 100 + rank, 10) for rank in range(1024)]
    ranks[77] = rank_figures(77, 50, 5_000)
    clocks = tuple(
        RankClock(rank=rank, offset_ns=0, drift=0.0, middle_ns=0, residual_ns=0, ends=9)
        for rank in range(1024)
        if rank != 500
    )
    figures = RanksAnalysis(
        world_size=1024, ranks=tuple(ranks), clocks=ClockAlignment(reference=0, clocks=clocks)
    )
    straggler = Straggler(
        rank=9, pattern="persistent", steps=(0,), of_steps=1, late_ns=1, per_step_ns=1,
        beyond_next_ns=1, waiting=(0,), step_ns=2, step_without_ns=1,
    )  # fmt: skip
    job = JobRanks(recording("kineto/cpu-only.json"), pl.DataFrame(), figures)
    assert [(each.rank, each.role) for each in job.shown_beside(0)] == [
        (77, "waits most"),
        (512, "median"),
        (1023, "slowest"),
    ]
    late = replace(job, figures=msgspec.structs.replace(figures, stragglers=(straggler,)))
    assert [(each.rank, each.role) for each in late.shown_beside(0)] == [
        (9, "straggler"),
        (77, "waits most"),
        (512, "median"),
    ]
    # Without a common clock nothing can stand beside another.
    assert job.shown_beside(500) == ()


def test_an_analysis_of_before_has_no_time_line() -> None:
    analysis = analysed("kineto/cpu-only.json")
    fields = msgspec.to_builtins(analysis)
    assert msgspec.convert(fields, Analysis) == analysis
    del fields["timeline"]
    assert msgspec.convert(fields, Analysis).timeline is None
