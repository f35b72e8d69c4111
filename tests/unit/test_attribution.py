"""Kernels find their operator and step; operators their phase; ranges their work."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gpuprof.collectors import kineto, schema
from gpuprof.collectors.call_tree.nesting import innermost, parents, thread_codes
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Manifest, ProcessInfo
from gpuprof.roofline.work.attribution import attribute, of_operators, rows_of
from gpuprof.roofline.work.op_tree import op_phases, range_members

DATA = Path(__file__).parents[1] / "data" / "kineto"


def capture_of(ranks: tuple[int, ...] = (0,), **rows: list[dict[str, Any]]) -> Capture:
    """A capture with the given rows; rank 0 and process 1 where a row does not say."""
    frames = {}
    for name, found in rows.items():
        complete = [{"rank": 0, "process": 1, "thread": 1, **row} for row in found]
        frames[name] = schema.conform(name, pl.DataFrame(complete, infer_schema_length=None))
    manifest = Manifest(tool_version="0", source="test", title="t", created_ns=0, ranks=ranks)
    return Capture(manifest, tuple(ProcessInfo(rank=rank) for rank in ranks), **frames)


def op(op_id: int, start: int, end: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    return {"op_id": op_id, "parent_id": parent, "name": f"op{op_id}"} | {
        "start_ns": start,
        "end_ns": end,
        **more,
    }


def launch(correlation: int, start: int, **more: Any) -> dict[str, Any]:
    return {"correlation": correlation, "start_ns": start, "end_ns": start + 1, **more}


def kernel(correlation: int | None, start: int = 1000, **more: Any) -> dict[str, Any]:
    row = {"correlation": correlation, "start_ns": start, "end_ns": start + 10, "kind": "kernel"}
    return {**row, "device": 0, "stream": 7, "name": "k", **more}


def step(index: int, start: int, end: int, phase: str = "profiled") -> dict[str, Any]:
    return {"index": index, "start_ns": start, "end_ns": end, "phase": phase}


def test_a_kernel_belongs_to_the_innermost_operator_around_its_launch() -> None:
    ops = [op(0, 0, 100), op(1, 10, 50, 0), op(2, 20, 30, 1), op(3, 60, 70, 0)]
    times = {1: 20, 2: 29, 3: 30, 4: 55, 5: 65, 6: 99, 7: 100}
    capture = attribute(
        capture_of(
            ops=ops,
            launches=[launch(key, time) for key, time in times.items()],
            kernels=[kernel(key) for key in times],
        )
    )
    assert capture.kernels["op_id"].to_list() == [2, 2, 1, 0, 3, 0, None]
    assert capture.processes[0].attributed


def test_operators_of_other_threads_and_processes_do_not_count() -> None:
    capture = attribute(
        capture_of(
            ops=[op(0, 0, 100), op(1, 0, 100, thread=2), op(2, 0, 100, process=2)],
            launches=[launch(5, 10, thread=2), launch(5, 10, process=2), launch(6, 10, thread=3)],
            kernels=[kernel(5), kernel(5, process=2), kernel(6)],
        )
    )
    assert capture.kernels["op_id"].to_list() == [1, 2, None]


def test_of_two_calls_with_one_correlation_the_earlier_one_is_the_launch() -> None:
    capture = attribute(
        capture_of(
            ops=[op(4, 0, 10), op(2, 20, 30)],
            launches=[launch(5, 25), launch(5, 5)],
            kernels=[kernel(5), kernel(5)],
        )
    )
    assert capture.kernels["op_id"].to_list() == [4, 4]


def test_ranks_are_attributed_apart() -> None:
    capture = attribute(
        capture_of(
            ranks=(0, 1),
            ops=[op(0, 0, 100), op(0, 0, 100, rank=1)],
            launches=[launch(5, 10), launch(5, 200, rank=1)],
            kernels=[kernel(5), kernel(5, rank=1)],
        )
    )
    assert capture.kernels.select("rank", "op_id").rows() == [(0, 0), (1, None)]


def test_all_kernels_of_a_graph_replay_share_its_launch() -> None:
    capture = attribute(
        capture_of(
            ops=[op(0, 0, 100)],
            launches=[launch(5, 10)],
            kernels=[kernel(5, 20), kernel(5, 40), kernel(5, 60)],
            steps=[step(3, 0, 15)],
        )
    )
    assert capture.kernels["op_id"].to_list() == [0, 0, 0]
    assert capture.kernels["step"].to_list() == [3, 3, 3]


def test_kernels_without_a_launch_are_counted_and_have_no_operator() -> None:
    capture = attribute(
        capture_of(
            ops=[op(0, 0, 9999)],
            launches=[launch(5, 10), launch(None, 10)],  # type: ignore[arg-type]
            kernels=[kernel(5), kernel(None), kernel(6)],
        )
    )
    assert capture.kernels["op_id"].to_list() == [0, None, None]
    assert "2 of 3 pieces of device work have no launch" in capture.processes[0].warnings[0]


def test_a_kernel_counts_to_the_step_that_launched_it() -> None:
    steps = [step(0, 0, 50, "warmup"), step(1, 50, 100), step(2, 100, 150)]
    times = {1: 49, 2: 50, 3: 99, 4: 100, 5: 150}
    capture = attribute(
        capture_of(
            steps=steps,
            launches=[launch(key, time) for key, time in times.items()],
            # The last one has no launch: its own start counts.
            kernels=[*(kernel(key, 120) for key in times), kernel(None, 130)],
        )
    )
    assert capture.kernels["step"].to_list() == [None, 1, 1, 2, None, 2]


def test_work_queued_before_the_recording_belongs_to_no_step() -> None:
    capture = attribute(
        capture_of(
            steps=[step(0, 0, 100)],
            launches=[launch(1, 10)],
            kernels=[kernel(None, 5), kernel(1, 20), kernel(None, 30)],
        )
    )
    assert capture.kernels["step"].to_list() == [None, 0, 0]
    assert "1 pieces of device work were launched before" in capture.processes[0].warnings[0]


def test_a_leaf_operator_keeps_its_own_id_and_counts_where_it_started() -> None:
    leaf = kernel(None, 30, kind="op", op_id=4)
    capture = attribute(capture_of(ops=[op(4, 30, 40)], kernels=[leaf], steps=[step(1, 0, 35)]))
    assert capture.kernels.select("op_id", "step").rows() == [(4, 1)]
    assert not capture.processes[0].warnings


def test_attributing_twice_changes_nothing() -> None:
    once = attribute(kineto.read(DATA / "nested-ops.json"))
    assert attribute(once) is once


def test_a_linear_layer_s_kernel_goes_to_its_mm() -> None:
    capture = attribute(kineto.read(DATA / "nested-ops.json"))
    assert capture.kernels["op_id"].to_list() == [2]


def test_a_recorded_training_step_is_attributed_whole() -> None:
    capture = attribute(kineto.read(DATA / "h100_block_train_bf16.json.gz"))
    kernels = capture.kernels
    assert kernels["op_id"].null_count() == 0
    assert sorted(kernels["step"].unique()) == sorted(capture.steps["index"])
    counts = kernels.group_by("step").len()["len"]
    assert counts.n_unique() == 1
    owners = kernels.join(capture.ops, on="op_id")
    gemm = owners.filter(pl.col("name").str.contains("gemm|nvjet"))
    assert set(gemm["name_right"]) == {"aten::mm"}


def test_phases_of_a_recorded_training_step() -> None:
    capture = kineto.read(DATA / "h100_block_train_bf16.json.gz")
    phases = capture.ops.join(op_phases(capture), on=["rank", "op_id"])
    count = phases.filter(pl.col("name") == "aten::mm").group_by("phase").len()
    mm = dict(count.iter_rows())
    # Each product of the forward has two in the backward.
    assert mm["backward"] == 2 * mm["forward"]
    fused = phases.filter(pl.col("name").str.starts_with("aten::_fused_adamw"))
    assert set(fused["phase"]) == {"optimizer"}


def test_forward_is_only_known_in_a_step_with_a_backward() -> None:
    node = "autograd::engine::evaluate_function: MulBackward0"
    capture = capture_of(
        ops=[
            op(0, 0, 10),
            op(1, 20, 30),
            op(2, 40, 50, name=node),
            op(3, 41, 49, 2),
            op(4, 42, 43, 3),
            op(5, 60, 70, name="Optimizer.step#SGD.step"),
            op(6, 61, 62, 5),
        ],
        steps=[step(1, 0, 15), step(2, 15, 100)],
    )
    expected = ["", "forward", "backward", "backward", "backward", "optimizer", "optimizer"]
    assert op_phases(capture)["phase"].to_list() == expected


def test_what_follows_the_backward_pass_up_to_the_optimizer_is_of_the_gradients() -> None:
    """Clipping, and the reduction that a sharded model's last node leaves for its end."""
    node, optimizer = (
        "autograd::engine::evaluate_function: MmBackward0",
        "Optimizer.step#AdamW.step",
    )
    ops = [
        op(0, 0, 10, name="aten::mm"),
        # Two passes of accumulated gradients, on a thread of autograd.
        op(1, 20, 40, name=node, thread=2),
        op(2, 50, 60, name="aten::mm"),
        op(3, 70, 90, name=node, thread=2),
        # Of the last node's end, then on both threads after it.
        op(4, 80, 85, 3, name="c10d::reduce_scatter", thread=2),
        op(5, 95, 99, name="fsdp::reduce_scatter", thread=2),
        op(6, 100, 110, name="aten::_foreach_norm"),
        op(7, 101, 105, 6, name="aten::linalg_vector_norm"),
        op(8, 120, 130, name=optimizer),
        op(9, 121, 125, 8, name="aten::_fused_adamw_"),
        op(10, 140, 150, name="aten::mm"),
    ]
    phases = op_phases(capture_of(ops=ops, steps=[step(0, 0, 200)]))["phase"].to_list()
    assert phases == [
        *("forward", "backward", "forward", "backward", "backward"),
        *("gradients", "gradients", "gradients", "optimizer", "optimizer", "forward"),
    ]


def test_without_an_optimizer_nothing_tells_where_the_gradients_are_done() -> None:
    node = "autograd::engine::evaluate_function: MmBackward0"
    ops = [op(0, 0, 10), op(1, 20, 40, name=node), op(2, 50, 60)]
    capture = capture_of(ops=ops, steps=[step(0, 0, 200)])
    assert op_phases(capture)["phase"].to_list() == ["forward", "backward", "forward"]


def test_an_optimizer_range_marks_the_operators_of_its_thread() -> None:
    capture = capture_of(
        ops=[op(0, 10, 20), op(1, 10, 20, thread=2), op(2, 30, 40)],
        ranges=[{"name": "Optimizer.step#AdamW.step", "start_ns": 5, "end_ns": 25}],
    )
    assert op_phases(capture)["phase"].to_list() == ["optimizer", "", ""]


def members(capture: Capture) -> dict[str, tuple[list[int], list[int]]]:
    """Of each range name the passes with work and the kernels in them."""
    rows = pl.Series(range(capture.kernels.height), dtype=pl.Int64)
    return {
        found.name: (sorted(found.passes), sorted(found.kernels))
        for found in range_members(capture, rows)
    }


def ranges_of(*rows: tuple[str, int, int | None]) -> list[dict[str, Any]]:
    return [{"name": name, "start_ns": start, "end_ns": end} for name, start, end in rows]


def test_work_in_several_ranges_of_one_name_counts_once() -> None:
    passes = [("a", 0, 50), ("a", 10, 30), ("a", 40, 80), ("a", 90, 95), ("a", 200, 300)]
    times = [5, 15, 45, 60, 85, 92]
    capture = capture_of(
        ranges=ranges_of(*passes),
        launches=[launch(key, time) for key, time in enumerate(times, 1)],
        kernels=[kernel(key) for key in range(1, 7)],
    )
    assert members(capture) == {"a": ([0, 1, 2, 3], [0, 1, 2, 3, 5])}


def test_work_of_a_thread_between_its_ranges_counts_to_those_of_the_main_thread() -> None:
    capture = capture_of(
        ranges=[
            {"name": name, "start_ns": start, "end_ns": end, "thread": thread}
            for name, start, end, thread in (
                ("forward", 0, 50, 1),
                ("backward", 50, 100, 1),
                ("library", 60, 65, 2),
            )
        ],
        launches=[launch(1, 10), launch(2, 62, thread=2), launch(3, 80, thread=2)],
        kernels=[kernel(1), kernel(2), kernel(3)],
    )
    assert members(capture) == {
        "forward": ([0], [0]),
        "backward": ([1], [2]),
        "library": ([2], [1]),
    }


def test_a_range_that_was_never_closed_holds_all_that_follows() -> None:
    capture = capture_of(
        ranges=ranges_of(("open", 10, None)),
        launches=[launch(1, 5), launch(2, 10**18)],
        kernels=[kernel(1), kernel(2)],
    )
    assert members(capture) == {"open": ([0], [1])}


def test_many_kernels_under_many_nested_ranges_need_no_memory_for_each_pair() -> None:
    depth, count = 2000, 100_000
    capture = capture_of(
        ranges=ranges_of(*(("nested", level, 10**9 - level) for level in range(depth))),
        launches=[launch(key, 5000 + key) for key in range(1, count + 1)],
        kernels=[kernel(key) for key in range(1, count + 1)],
    )
    (found,) = range_members(capture, pl.Series(range(count)))
    assert (len(found.passes), len(found.kernels)) == (depth, count)


def test_ranges_hold_the_work_launched_inside_them() -> None:
    ranges = [("outer", 0, 100, 1), ("inner", 10, 20, 1), ("other", 0, 100, 2)]
    launches = {1: (5, 1), 2: (10, 1), 3: (19, 1), 4: (20, 1), 5: (100, 1), 6: (50, 2), 7: (15, 9)}
    capture = capture_of(
        ranges=[
            {"name": name, "start_ns": start, "end_ns": end, "thread": thread}
            for name, start, end, thread in ranges
        ],
        launches=[launch(key, at, thread=thread) for key, (at, thread) in launches.items()],
        kernels=[*(kernel(key) for key in launches), kernel(None, 15)],
    )
    # Launch 7 comes from a thread without ranges, as autograd's are.
    assert members(capture) == {
        "outer": ([0], [0, 1, 2, 3, 6]),
        "inner": ([1], [1, 2, 6]),
        "other": ([2], [5]),
    }


def test_a_graph_replay_belongs_to_the_range_around_it() -> None:
    capture = attribute(kineto.read(DATA / "cuda-graph.json"))
    assert capture.kernels["op_id"].to_list() == [None] * 3
    assert members(capture) == {"decode": ([0], [0, 1, 2])}


def test_leaf_operators_are_members_by_their_own_start() -> None:
    capture = capture_of(
        ops=[op(0, 10, 20)],
        kernels=[kernel(None, 10, kind="op", op_id=0, stream=1)],
        ranges=[{"name": "r", "start_ns": 0, "end_ns": 15}],
    )
    assert members(capture) == {"r": ([0], [0])}


def naive_parent(threads: list[int], starts: list[int], ends: list[int]) -> list[int]:
    result = []
    for child in range(len(starts)):
        around = [
            other
            for other in range(child)
            if threads[other] == threads[child] and starts[other] <= starts[child] < ends[other]
        ]
        result.append(around[-1] if around else -1)
    return result


def random_tree(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Properly nested intervals on two threads, sorted as the table ops is."""
    random = np.random.default_rng(seed)
    rows = []

    def grow(thread: int, start: int, end: int, depth: int) -> None:
        rows.append((start, -end, thread))
        cuts = np.sort(random.integers(start, end + 1, size=2 * int(random.integers(0, 4))))
        for left, right in zip(cuts[::2], cuts[1::2], strict=True):
            if depth < 5 and (left, right) != (start, end):
                grow(thread, int(left), int(right), depth + 1)

    for thread in (1, 2):
        for root in range(3):
            grow(thread, 1000 * root, 1000 * root + 900, 0)
    ordered = np.array(sorted(rows, key=lambda row: (row[0], row[1])))
    return ordered[:, 2], ordered[:, 0], -ordered[:, 1]


@pytest.mark.parametrize("seed", range(20))
def test_parents_and_innermost_equal_a_naive_search(seed: int) -> None:
    threads, starts, ends = random_tree(seed)
    found = parents(threads, starts, ends)
    naive = naive_parent(threads.tolist(), starts.tolist(), ends.tolist())
    assert found.tolist() == naive
    at = np.arange(0, 3000, 7)
    at_threads = np.where(at % 2, 1, 2)
    result = innermost(threads, starts, ends, found, at_threads, at)
    for time, thread, row in zip(at, at_threads, result, strict=True):
        around = np.flatnonzero((threads == thread) & (starts <= time) & (time < ends))
        assert row == (around[-1] if len(around) else -1)


def test_a_child_that_outlives_its_parent_by_rounding_does_not_adopt_what_follows() -> None:
    threads = np.array([1, 1, 1])
    assert parents(threads, np.array([0, 5, 10]), np.array([10, 11, 20])).tolist() == [-1, 0, -1]


def test_deep_and_wide_trees_take_one_pass() -> None:
    depth, width = 2000, 100_000
    starts = np.concatenate([np.arange(depth), depth + np.arange(width)])
    ends = np.concatenate([np.full(depth, 10**9), depth + 1 + np.arange(width)])
    found = parents(np.ones(len(starts), np.int64), starts, ends)
    assert (found[depth:] == depth - 1).all()
    rows = [
        op(i, int(s), int(e), int(p) if p >= 0 else None)
        for i, (s, e, p) in enumerate(zip(starts[:5000], ends[:5000], found[:5000], strict=True))
    ]
    rows[0]["name"] = "MulBackward0"
    assert set(op_phases(capture_of(ops=rows))["phase"]) == {"backward"}


def test_all_ranks_keep_their_rows_in_order() -> None:
    one = kineto.read(DATA / "nested-ops.json")
    attributed = attribute(one)
    assert_frame_equal(attributed.kernels.drop("op_id", "step"), one.kernels.drop("op_id", "step"))


def test_calls_that_follow_each_other_have_no_parents() -> None:
    threads = np.array([1, 2, 1, 2, 1])
    starts, ends = np.array([0, 1, 5, 6, 9]), np.array([5, 6, 5, 9, 12])
    assert parents(threads, starts, ends).tolist() == [-1] * 5
    # One that begins a moment earlier lies in the one before it.
    assert parents(threads, np.array([0, 1, 5, 5, 9]), ends).tolist() == [-1, -1, -1, 1, -1]


@pytest.mark.parametrize("processes", [(1, 1), (1, 2), (1, None)])
def test_threads_of_one_number_are_told_apart_by_their_process(
    processes: tuple[int | None, int | None],
) -> None:
    types = {"process": pl.Int64, "thread": pl.Int64}
    frames = [
        pl.DataFrame({"process": [process] * 3, "thread": [7, None, 8]}, schema=types)
        for process in processes
    ]
    first, second = (codes.tolist() for codes in thread_codes(*frames))
    assert len(set(first)) == len(set(second)) == 3
    assert (first == second) == (processes[0] == processes[1])
    assert len({*first, *second}) == (3 if first == second else 6)


def test_numbers_of_operators_are_not_taken_for_rows() -> None:
    # The last row's number is beyond the table: operators between were left out of the capture.
    ops = pl.DataFrame({"op_id": [0, 1, 5], "name": ["a", "b", "c"]})
    wanted = pl.Series([5, None, 1, 7, 2])
    assert rows_of(ops, wanted).tolist() == [2, -1, 1, -1, -1]
    assert rows_of(ops, wanted.slice(0, 3)).tolist() == [2, -1, 1]
    assert of_operators(ops, wanted, "name")["name"].to_list() == ["c", None, "b", None, None]
