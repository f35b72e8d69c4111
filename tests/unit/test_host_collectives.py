"""Collectives of gloo on a CPU: what each is, how large, of which group, and which comes when.

tests/data/kineto/gloo_collectives_R.json.gz are two ranks of one call each of what gloo has, with
torch 2.13.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.live import flight_recorder
from gpuprof.collectors.opening import open_trace
from gpuprof.collectors.recorded_collectives import (
    RecordedCollective,
    RecordedCollectives,
    collectives_beside,
    read_collectives,
)
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute

DATA = Path(__file__).parents[1] / "data" / "kineto"
FLOAT_BYTES = 4
# The program's own calls, with what it put in (2 ranks): name, elements of the whole buffer.
LARGE, SMALL, RANKS = 262144, 1024, 2
CALLED: list[tuple[str, int | None]] = [
    ("allreduce", LARGE),
    ("allreduce", LARGE),
    ("_allgather_base", SMALL * RANKS),
    ("allgather", SMALL * RANKS),
    ("_reduce_scatter_base", SMALL * RANKS),
    ("broadcast", LARGE),
    ("reduce", LARGE),
    ("barrier", None),
    ("all_to_all", SMALL * RANKS),
    ("send or recv", LARGE),
    ("allreduce", LARGE),
]
COLUMNS = ("collective", "message_bytes", "dtype", "group", "group_size", "sequence")


def collectives(capture: Capture) -> pl.DataFrame:
    return capture.kernels.filter(pl.col("kind") == "collective")


@pytest.mark.parametrize("rank", [0, 1])
def test_each_collective_of_gloo_has_its_kind_size_and_group(rank: int) -> None:
    capture = open_trace(DATA / f"gloo_collectives_{rank}.json.gz")
    found = collectives(capture)
    assert capture.manifest.ranks == (rank,)
    assert [
        (name.replace("send" if rank == 0 else "recv", "send or recv"), size)
        for name, size in found.select("collective", "message_bytes").iter_rows()
    ] == [(name, None if size is None else size * FLOAT_BYTES) for name, size in CALLED]
    assert set(found.filter(pl.col("collective") != "barrier")["dtype"]) == {"Float"}
    # The trace names one group, and no sequence numbers.
    assert set(found.select("group", "group_size", "sequence").iter_rows()) == {("0", 2, None)}


def test_a_collective_is_the_work_of_the_operator_that_called_it() -> None:
    capture = open_trace(DATA / "gloo_collectives_0.json.gz")
    ops = capture.ops.select("op_id", operator="name", called_ns="start_ns", returned_ns="end_ns")
    found = collectives(capture).join(ops, on="op_id", how="left", maintain_order="left")
    assert found["operator"].str.starts_with("c10d::").all()
    # The other thread begins in less than a millisecond, and not before the call.
    assert (found["start_ns"] - found["called_ns"]).is_between(0, 1_000_000).all()
    # Neither what begins collectives nor what waits for them is work of the calling thread.
    leaves = capture.kernels.filter(pl.col("kind") == "op")["name"]
    assert leaves.str.contains("c10d|wait_tensor|gloo").sum() == 0
    assert capture.ranges["name"].str.starts_with("gloo:").sum() == 0


def test_two_ranks_interleaved_in_one_file_keep_their_own_collectives(tmp_path: Path) -> None:
    alone = [open_trace(DATA / f"gloo_collectives_{rank}.json.gz") for rank in (0, 1)]
    documents = [
        json.loads(read_gzip(DATA / f"gloo_collectives_{rank}.json.gz")) for rank in (0, 1)
    ]
    events = [event for document in documents for event in document["traceEvents"]]
    merged = {**documents[0], "traceEvents": sorted(events, key=lambda event: event["ts"])}
    (tmp_path / "merged.json").write_text(json.dumps(merged))
    capture = open_trace(tmp_path / "merged.json")
    assert capture.manifest.ranks == (0, 1)
    for rank in (0, 1):
        columns = ["start_ns", "end_ns", "name", "process", "op_id", *COLUMNS]
        own = collectives(capture.rank(rank)).select(columns)
        assert own.equals(collectives(alone[rank]).select(columns))


def read_gzip(path: Path) -> bytes:
    import gzip

    return gzip.decompress(path.read_bytes())


# -- made up: what is missing, ambiguous, or of several groups -------------------------------------


def call(
    ts: float, name: str = "allreduce_", elements: int = 10, *, thread: int = 1, duration: float = 5
) -> dict[str, Any]:
    """An operator of c10d; times in us."""
    args = {"Input Dims": [[[elements]]], "Input type": ["TensorList"]}
    return event("cpu_op", f"c10d::{name}", ts, duration, thread, args)


def work(
    ts: float, name: str = "all_reduce", elements: int = 10, *, duration: float = 20
) -> dict[str, Any]:
    """What a thread of gloo does."""
    args = {"Input Dims": [[elements]], "Input type": ["float"]}
    return event("user_annotation", f"gloo:{name}", ts, duration, 9, args)


def event(
    category: str, name: str, ts: float, duration: float, thread: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": thread} | {
        "ts": ts,
        "dur": duration,
        "args": args,
    }


def read(
    folder: Path,
    *events: dict[str, Any],
    groups: Sequence[tuple[str, int]] = (("0", 4),),
    recorded: Sequence[RecordedCollective] = (),
) -> Capture:
    configured = [{"pg_name": name, "pg_size": size} for name, size in groups]
    path = folder / "trace.json"
    document = {
        "traceEvents": events,
        "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 4, "pg_config": configured},
    }
    path.write_text(json.dumps(document))
    if recorded:
        beside = RecordedCollectives(tuple(recorded))
        collectives_beside(path).write_bytes(msgspec.json.encode(beside))
    return kineto.read(path, recorded=bool(recorded))


def callers(capture: Capture) -> list[int | None]:
    """When the operator of each collective began, in us; None where it has none."""
    ops = capture.ops.select("op_id", called_ns="start_ns")
    found = collectives(capture).join(ops, on="op_id", how="left", maintain_order="left")
    return [None if time is None else time // 1000 for time in found["called_ns"]]


def test_what_was_called_before_the_recording_has_no_operator(tmp_path: Path) -> None:
    capture = read(tmp_path, work(5), call(10), work(30), call(40), call(50), work(60))
    # The last call's work had not begun when the recording ended.
    assert callers(capture) == [None, 10, 40]


def test_sizes_tell_apart_what_two_queues_run_in_another_order(tmp_path: Path) -> None:
    capture = read(
        tmp_path, call(10, elements=10), call(20, elements=99), work(30, elements=99), work(40)
    )
    assert callers(capture) == [20, 10]
    assert collectives(capture)["message_bytes"].to_list() == [99 * 4, 10 * 4]


def test_lists_too_long_to_be_recorded_are_matched_in_order(tmp_path: Path) -> None:
    unsized = [call(10), call(20)]
    for each in unsized:
        each["args"]["Input Dims"] = [[]]
    capture = read(tmp_path, *unsized, work(12, elements=8), work(22, elements=9))
    assert callers(capture) == [10, 20]
    assert collectives(capture)["message_bytes"].to_list() == [8 * 4, 9 * 4]


def test_of_several_groups_a_trace_does_not_say_which(tmp_path: Path) -> None:
    capture = read(tmp_path, call(10), work(12), groups=[("0", 4), ("1", 2)])
    assert collectives(capture).select("group", "group_size").rows() == [(None, None)]


def test_the_flight_recorder_tells_group_and_sequence(tmp_path: Path) -> None:
    seen = [
        RecordedCollective(12_000, "gloo:all_reduce", "1", 7),
        RecordedCollective(212_000, "gloo:all_reduce", "0", 3),
        # Of another kind, and when none was called.
        RecordedCollective(12_100, "gloo:broadcast", "0", 4),
        RecordedCollective(900_000, "gloo:all_reduce", "0", 5),
    ]
    capture = read(
        tmp_path,
        *(call(10), work(30), call(210), work(230), call(410), work(430)),
        groups=[("0", 4), ("1", 2)],
        recorded=seen,
    )
    found = collectives(capture).select("group", "group_size", "sequence").rows()
    assert found == [("1", 2, 7), ("0", 4, 3), (None, None, None)]


def test_a_record_that_could_be_of_two_calls_is_of_neither(tmp_path: Path) -> None:
    seen = [
        RecordedCollective(11_000, "gloo:all_reduce", "1", 7),
        RecordedCollective(16_000, "gloo:all_reduce", "0", 3),
    ]
    capture = read(
        tmp_path,
        *(call(10), call(15, thread=2), work(30), work(55)),
        groups=[("0", 4), ("1", 2)],
        recorded=seen,
    )
    assert collectives(capture)["sequence"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("splits", "collective"),
    [("[]", "all_to_all"), ("[5, 5]", "all_to_all"), ("[4, 6]", "all_to_allv")],
)
def test_an_all_to_all_of_uneven_shares_is_said(
    splits: str, collective: str, tmp_path: Path
) -> None:
    called = call(10, "alltoall_base_")
    called["args"] = {
        "Input Dims": [[10], [10], [], [], []],
        "Input type": ["float", "float", "", "ScalarList", "ScalarList"],
        "Concrete Inputs": ["", "", "", "[5, 5]", splits],
    }
    capture = read(tmp_path, called, work(12, "all_to_all"))
    assert collectives(capture).select("collective", "message_bytes").rows() == [(collective, 40)]


def test_a_collective_is_of_the_step_that_called_it(tmp_path: Path) -> None:
    steps = [
        event("user_annotation", f"ProfilerStep#{index}", 100 * index, 100, 1, {})
        for index in (0, 1, 2)
    ]
    capture = attribute(read(tmp_path, *steps, call(90), work(105), call(190), work(195)))
    assert collectives(capture)["step"].to_list() == [0, 1]


def test_waiting_for_a_collective_is_communication_and_not_python(tmp_path: Path) -> None:
    """Three steps of 1 ms, of which the calling thread waits 0.6 ms for what gloo does."""
    events = []
    for index in range(3):
        at = 1000 * index
        events += [
            event("user_annotation", f"ProfilerStep#{index}", at, 1000, 1, {}),
            event("cpu_op", "aten::mm", at + 10, 290, 1, {"Input Dims": [[8, 8], [8, 8]]}),
            call(at + 300),
            work(at + 302, duration=600),
        ]
    analysis = analyze(read(tmp_path, *events))
    assert analysis.split is not None
    parts = {part.kind: part.nanoseconds for part in analysis.split.parts}
    assert parts["communication"] == 600_000
    assert parts["outside"] == 1_000_000 - 600_000 - 290_000


# -- what the program's own flight recorder says ---------------------------------------------------


def test_the_flight_recorder_is_read_as_torch_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"profiling_name": "gloo:all_reduce", "process_group": ["0", "default_pg"]}
    entry |= {"time_created_ns": 5, "collective_seq_id": 3, "p2p_seq_id": 1, "is_p2p": False}
    sent = {**entry, "profiling_name": "gloo:send", "is_p2p": True, "time_created_ns": 6}
    other = {**entry, "profiling_name": "nccl:all_reduce"}
    dump = {"version": "2.10", "entries": [entry, sent, other]}

    class Module:
        @staticmethod
        def _dump_fr_trace_json() -> bytes:
            return json.dumps(dump).encode()

    trace = tmp_path / "trace.json"
    monkeypatch.setitem(flight_recorder.sys.modules, "torch._C._distributed_c10d", Module)
    flight_recorder.write_collectives(trace)
    assert read_collectives(trace) == (
        RecordedCollective(5, "gloo:all_reduce", "0", 3),
        RecordedCollective(6, "gloo:send", "0", 1),
    )


def test_a_torch_without_a_flight_recorder_of_gloo_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(flight_recorder.sys.modules, "torch._C._distributed_c10d", object())
    flight_recorder.write_collectives(tmp_path / "trace.json")
    assert [*tmp_path.iterdir()] == []
    assert read_collectives(tmp_path / "trace.json") == ()
