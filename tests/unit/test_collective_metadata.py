"""A collective's message and group, from its operator where its kernel has none."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from gpuprof.collectors import kineto

NAME = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
METADATA = {
    "Collective name": "allreduce",
    "dtype": "BFloat16",
    "In msg nelems": 1000,
    "Out msg nelems": 1000,
    "Process Group Name": "7",
    "Group size": 4,
}
COLUMNS = ("collective", "dtype", "message_bytes", "group", "group_size")


def operator(start: int, duration: int, thread: int = 9, **args: Any) -> dict[str, Any]:
    """One record_param_comms; times in us."""
    event = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 7, "tid": thread}
    return {**event, "ts": start, "dur": duration, "args": {**METADATA, **args}}


def kernel(correlation: int, launched: int, **args: Any) -> list[dict[str, Any]]:
    """One collective's kernel and its launch."""
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 7, "tid": 9}
    work = {"ph": "X", "cat": "kernel", "name": NAME, "pid": 0, "tid": 20}
    return [
        {**launch, "ts": launched, "dur": 1, "args": {"correlation": correlation}},
        {**work, "ts": launched + 100, "dur": 10}
        | {"args": {"device": 0, "stream": 20, "correlation": correlation, **args}},
    ]


def read(path: Path, *events: dict[str, Any]) -> pl.DataFrame:
    file = path / "t.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return kineto.read(file).kernels


def test_a_kernel_without_metadata_has_its_operator_s(tmp_path: Path) -> None:
    kernels = read(tmp_path, operator(0, 10), *kernel(1, 5), *kernel(2, 30))

    assert kernels["kind"].to_list() == ["collective"] * 2
    # The second is launched where no operator is.
    assert kernels.select(COLUMNS).rows() == [("allreduce", "BFloat16", 2000, "7", 4), (None,) * 5]


def test_a_kernel_s_own_metadata_counts_before_its_operator_s(tmp_path: Path) -> None:
    own = {"Collective name": "_allgather_base", "dtype": "Float", "Group size": 2}
    own |= {"In msg nelems": 10, "Out msg nelems": 20}
    kernels = read(tmp_path, operator(0, 10), *kernel(1, 5, **own))

    assert kernels.select(COLUMNS).rows() == [("_allgather_base", "Float", 80, None, 2)]


def test_an_operator_of_several_kernels_does_not_say_how_large_each_is(tmp_path: Path) -> None:
    kernels = read(tmp_path, operator(0, 10), *kernel(1, 3), *kernel(2, 6))

    assert kernels.select(COLUMNS).rows() == [("allreduce", "BFloat16", None, "7", 4)] * 2


def test_the_innermost_operator_on_the_launching_thread_counts(tmp_path: Path) -> None:
    outer = operator(0, 20, **{"Collective name": "allreduce_coalesced", "In msg nelems": 9000})
    inner = operator(4, 4)
    elsewhere = operator(5, 2, thread=10, **{"Collective name": "broadcast"})
    kernels = read(tmp_path, outer, inner, elsewhere, *kernel(1, 5))

    assert kernels.select(COLUMNS).rows() == [("allreduce", "BFloat16", 2000, "7", 4)]


def test_a_spelling_of_another_version_is_read_alike(tmp_path: Path) -> None:
    """The lenient decoder takes what the exact one does not know: numbers as text."""
    args = {"In msg nelems": "1000", "Out msg nelems": "1000", "Group size": "4"}
    kernels = read(tmp_path, operator(0, 10, **args), *kernel(1, 5))

    assert kernels.select(COLUMNS).rows() == [("allreduce", "BFloat16", 2000, "7", 4)]


def test_a_kernel_that_computes_inside_the_operator_stays_one(tmp_path: Path) -> None:
    events = kernel(1, 5)
    events[1]["name"] = "void at::native::elementwise_kernel<128, 2>(int)"
    kernels = read(tmp_path, operator(0, 10), *events)

    assert kernels.select("kind", *COLUMNS).rows() == [("kernel", *(None,) * 5)]
