"""Traces of several processes in one file: ids count within a process."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from gpuprof.collectors import kineto
from gpuprof.collectors.errors import CaptureError
from gpuprof.roofline.work.attribution import attribute


def process(
    pid: int, device: int, ids: list[int], at: int = 0, stream: int = 7
) -> list[dict[str, Any]]:
    """Steps, operators "op PID", launches and kernels of one process, one for each id."""
    host = {"ph": "X", "pid": pid, "tid": pid}
    step = {"cat": "user_annotation", "name": "ProfilerStep#1", "ts": at, "dur": 1000}
    found: list[dict[str, Any]] = [{**host, **step}]
    for number, identity in enumerate(ids):
        start = at + 10 * number
        found += [
            {**host, "cat": "cpu_op", "name": f"op {pid}", "ts": start, "dur": 8},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 1, "dur": 2}
            | {"args": {"correlation": identity}},
            {"ph": "X", "pid": device, "tid": stream, "cat": "kernel", "name": f"kernel {pid}"}
            | {"ts": start + 20, "dur": 5}
            | {"args": {"correlation": identity, "device": device, "stream": stream}},
        ]
    return found


def write(path: Path, *events: list[dict[str, Any]], **fields: Any) -> Path:
    path.write_text(json.dumps({**fields, "traceEvents": [*chain(*events)]}))
    return path


@pytest.mark.parametrize("second", [[4, 5, 6], [1, 2, 9]], ids=["own ids", "shared ids"])
def test_each_process_is_a_rank_with_its_own_kernels(second: list[int], tmp_path: Path) -> None:
    # Of each process one id at least is its own, which tells whose its stream is.
    path = write(tmp_path / "t.json", process(900, 1, second, at=3), process(100, 0, [1, 2, 3]))
    capture = attribute(kineto.read(path))
    assert [info.process for info in capture.processes] == [100, 900]
    assert capture.kernels.select("rank", "process", "name").unique().sort("rank").rows() == [
        (0, 100, "kernel 100"),
        (1, 900, "kernel 900"),
    ]
    named = capture.kernels.join(capture.ops, on=["rank", "op_id"], suffix="_op")
    assert named.height == 6
    assert (named["process"].cast(str) == named["name_op"].str.strip_prefix("op ")).all()
    assert capture.steps["rank"].to_list() == [0, 1]
    assert any("processes 100, 900 are merged" in text for text in capture.processes[0].warnings)


def test_processes_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", process(100, 0, [1, 2]), process(900, 1, [1, 2], at=3))
    with pytest.raises(CaptureError, match=r"a merged trace: processes 100, 900 .* 4 of 4 pieces"):
        kineto.read(path)


def test_two_processes_on_one_stream_that_share_an_id_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", process(100, 0, [1, 2]), process(900, 0, [2, 3], at=3))
    with pytest.raises(CaptureError, match="a merged trace"):
        kineto.read(path)


def test_a_process_that_only_asks_is_no_rank(tmp_path: Path) -> None:
    query = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGetDeviceCount", "pid": 5, "tid": 5}
    path = write(
        tmp_path / "t.json",
        process(100, 0, [1, 2]),
        [{**query, "ts": 1, "dur": 1, "args": {"correlation": 1}}],
    )
    capture = attribute(kineto.read(path))
    assert [info.process for info in capture.processes] == [100]
    assert capture.kernels["op_id"].null_count() == 0


def test_processes_of_a_run_on_cpus_are_ranks(tmp_path: Path) -> None:
    ops = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": 1, "ts": pid, "dur": 2}
        for pid in (7, 3)
    ]
    capture = kineto.read(write(tmp_path / "t.json", ops))
    assert [info.process for info in capture.processes] == [3, 7]
    assert capture.kernels.select("rank", "process").rows() == [(0, 3), (1, 7)]
