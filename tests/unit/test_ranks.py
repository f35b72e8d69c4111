"""Which rank a file of a folder is: what it says, what its name says, or its order."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.opening import open_trace


def write(path: Path, *, rank: int | None = None, device: bool = True, name: str = "k") -> None:
    """A trace of one operator, with a kernel called `name` where it used a `device`."""
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9}
    kernel = {**op, "cat": "kernel", "name": name, "pid": 0, "args": {"device": 0, "stream": 7}}
    document: dict[str, Any] = {"traceEvents": [op, kernel] if device else [op]}
    if rank is not None:
        document["distributedInfo"] = {"rank": rank, "world_size": 4}
    path.write_text(json.dumps({**document, "deviceProperties": []}))


def ranks(capture: Capture) -> dict[int, str]:
    return dict(capture.kernels.select("rank", "name").iter_rows())


def warnings_of(capture: Capture) -> str:
    return "\n".join(capture.processes[0].warnings)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("dp0_pp0_tp1_dcp0_ep1_rank1.17900000000000001.pt.trace.json", 1),
        ("trace_rank_00003.json", 3),
        ("job-rank-34.pt.trace.json", 34),
        ("Rank=2.json", 2),
        ("rank7_of_8.json", 7),
        ("frank9.json", 0),
        ("node1_local_rank5.json", 0),
        ("rank1_as_seen_by_rank2.json", 0),
        ("host_12.1695835535.pt.trace.json", 0),
    ],
)
def test_a_name_says_the_rank_where_the_trace_does_not(
    name: str, rank: int, tmp_path: Path
) -> None:
    write(tmp_path / name)
    capture = open_trace(tmp_path / name)
    assert capture.manifest.ranks == (rank,)
    assert capture.kernels["rank"].to_list() == [rank]
    assert capture.processes[0].world_size > rank


def test_what_a_trace_says_counts_before_its_name(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", rank=3, name="three")
    write(tmp_path / "rank3.json", name="nameless")
    capture = open_trace(tmp_path)
    assert ranks(capture) == {3: "three", 4: "nameless"}
    assert "rank3 is rank 4" in warnings_of(capture)


def test_one_nameless_file_renumbers_no_other(tmp_path: Path) -> None:
    write(tmp_path / "a.json", name="nameless")
    for rank in (0, 1, 5):
        write(tmp_path / f"z{rank}.json", rank=rank, name=f"k{rank}")
    capture = open_trace(tmp_path)
    assert ranks(capture) == {0: "k0", 1: "k1", 5: "k5", 6: "nameless"}
    assert "they are numbered in the order of the files: a is rank 6" in warnings_of(capture)


@pytest.mark.parametrize("named", ["rank0.json", "z.json"])
def test_a_front_end_without_a_rank_or_device_work_is_no_rank(named: str, tmp_path: Path) -> None:
    write(tmp_path / "api.async_llm.json", device=False)
    write(tmp_path / named, name="worker")
    capture = open_trace(tmp_path)
    assert ranks(capture) == {0: "worker"}
    assert "left out: api.async_llm: no device work and no rank" in warnings_of(capture)


def test_a_rank_without_device_work_stays_where_its_name_says_it(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", name="worker")
    write(tmp_path / "rank1.json", device=False)
    assert open_trace(tmp_path).manifest.ranks == (0, 1)


def test_ranks_of_a_run_on_cpus_without_names_are_in_order(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.json", device=False)
    assert open_trace(tmp_path).manifest.ranks == (0, 1)
