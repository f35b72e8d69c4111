"""What is kept of one rank: right, small, and the same after it has travelled."""

import io
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto
from gpuprof.roofline.ranks.summarise import summarise
from gpuprof.roofline.ranks.summary import FRAMES, IDLE, OTHERS, RankSummary, joined_parts, parts_of
from gpuprof.roofline.ranks.work_rows import bounded

RECORDINGS = Path(__file__).parents[3] / "shared" / "data" / "recordings"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def one_rank() -> CaptureBuilder:
    """Two steps: a product, an all-reduce half under a second product, and a pause of the host."""
    build = CaptureBuilder()
    for begin in (0, 100_000_000):
        build.step("profiled", begin, begin + 100_000_000)
        first = build.mm(begin, begin + 1_000_000)
        build.kernel(begin + 100, begin + 1_000_000, begin + 11_000_000, op_id=first)
        known = {"collective": "allreduce", "message_bytes": 64, "group": "0", "group_size": 2}
        build.kernel(
            begin + 1_000_100,
            begin + 11_000_000,
            begin + 31_000_000,
            ALL_REDUCE,
            kind="collective",
            stream=20,
            **known,
        )
        build.mm(begin + 2_000_000, begin + 3_000_000, k=64)
        build.kernel(begin + 2_000_100, begin + 11_000_000, begin + 21_000_000)
    return build


def test_a_step_divides_into_work_exposed_communication_and_idle_time() -> None:
    summary = summarise(one_rank().build(world_size=2), 0)
    steps = summary.steps.select(
        "index", "begun_ns", "done_ns", "working_ns", "exposed_communication_ns", "idle_ns"
    )
    assert steps.rows() == [
        (0, 0, 31_000_000, 20_000_000, 10_000_000, 1_000_000),
        # From the end of the first one's work.
        (1, 31_000_000, 131_000_000, 20_000_000, 10_000_000, 70_000_000),
    ]
    assert summary.collectives["exposed_ns"].to_list() == [10_000_000, 10_000_000]
    idle = summary.idle.group_by("step").agg(pl.col("nanoseconds").sum()).sort("step")
    assert idle.rows() == [(0, 1_000_000), (1, 70_000_000)]


def test_work_is_told_by_operator_and_by_the_collectives_before_it() -> None:
    work = summarise(one_rank().build(world_size=2), 0).work
    first = work.filter(pl.col("step") == 0).select("segment", "name", "input_dims", "calls")
    assert first.rows() == [
        (0, "aten::mm", "[[64, 32], [32, 16]]", 1),
        (1, "aten::mm", "[[64, 64], [64, 16]]", 1),
    ]


def test_a_summary_is_the_same_after_it_has_travelled() -> None:
    summary = summarise(one_rank().build(world_size=2), 0)
    arrived = RankSummary.from_bytes(summary.to_bytes())
    assert arrived.process == summary.process
    for name in FRAMES:
        assert arrived.frame(name).equals(summary.frame(name)), name


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data[:5], bytes.hex])
def test_what_is_no_summary_is_refused(change: object) -> None:
    data = summarise(one_rank().build(), 0).to_bytes()
    broken = change(data)  # type: ignore[operator]
    with pytest.raises(ValueError, match="no summary of a rank"):
        RankSummary.from_bytes(broken.encode() if isinstance(broken, str) else broken)


def test_frames_in_arrow_are_refused_before_polars_reads_them() -> None:
    # A damaged buffer of theirs may claim any size, for which polars aborts the process.
    summary = summarise(one_rank().build(), 0)
    parts = parts_of(summary.to_bytes())
    buffer = io.BytesIO()
    summary.frame(next(iter(FRAMES))).write_ipc(buffer, compression="zstd")
    with pytest.raises(ValueError, match="no summary of a rank"):
        RankSummary.from_bytes(joined_parts([parts[0], buffer.getvalue(), *parts[2:]]))


def test_small_kinds_of_work_are_added_up_where_there_are_many() -> None:
    rows = pl.DataFrame(
        [(step, 0, f"op {number}", 1, number) for step in range(2) for number in range(100)],
        schema=["step", "segment", "name", "calls", "device_ns"],
        orient="row",
    )
    kept = bounded(rows, ("name",), "device_ns", 42)
    assert kept.height == 42
    assert kept["device_ns"].sum() == rows["device_ns"].sum()
    assert kept.filter(pl.col("name") == OTHERS)["calls"].to_list() == [80, 80]
    assert kept.filter(pl.col("name") != OTHERS)["device_ns"].min() == 80


def test_small_pauses_are_added_up_without_a_place_and_travel() -> None:
    whole = summarise(one_rank().build(world_size=2), 0)
    rows = pl.DataFrame(
        [(0, 0, "host", f"call {number}", "train.py:1", True, number) for number in range(100)],
        schema=IDLE,
        orient="row",
    )
    kept = bounded(rows, ("kind", "culprit", "place", "keeps"), "nanoseconds", 42)
    others = kept.filter(pl.col("culprit") == OTHERS)
    assert others.select("kind", "place", "keeps").rows() == [("host", "", True)]
    assert kept["nanoseconds"].sum() == rows["nanoseconds"].sum()
    summary = replace(whole, idle=kept.select(IDLE.names()))
    assert RankSummary.from_bytes(summary.to_bytes()).idle.equals(summary.idle)


def test_a_recorded_rank_is_a_few_kilobytes() -> None:
    path = RECORDINGS / "h200x4_straggler_rank3.json.gz"
    if not path.is_file():
        pytest.skip("the recordings are not beside this repository")
    summary = summarise(kineto.read(path), 3)
    assert len(summary.to_bytes()) < 100_000
    extra = summary.work.filter(pl.col("input_dims") == "[[4096, 4096], [4096, 4096]]")
    # 20 products of bf16 4096 cubed in each step, forward of the first all-reduce.
    assert extra.select("step", "segment", "calls").rows() == [(2, 0, 20), (3, 0, 20), (4, 0, 20)]
    assert 3e6 < extra["device_ns"].min() < 4e6


def test_a_trace_that_marks_no_steps_is_one() -> None:
    build = one_rank()
    build.rows["steps"].clear()
    summary = summarise(build.build(None, world_size=2), 0)
    (step,) = summary.steps.iter_rows(named=True)
    assert (step["index"], step["phase"]) == (0, "profiled")
    assert (step["begun_ns"], step["done_ns"]) == (1_000_000, 131_000_000)
    assert (step["working_ns"], step["exposed_communication_ns"]) == (40_000_000, 20_000_000)
    assert summary.collectives["step"].to_list() == [0, 0]
