import csv
import gzip
import io
import os
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpuprof.collectors import nsys
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError

DATA = Path(__file__).resolve().parents[1] / "data"
SHARED = Path(__file__).resolve().parents[3] / "shared"


PID = 500
GLOBAL_PID = 1 << 48 | PID << 24
GLOBAL_TID = GLOBAL_PID | 501

_COLUMNS = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,"
        " globalPid INT, demangledName INT, shortName INT, gridX INT, gridY INT, gridZ INT,"
        " blockX INT, blockY INT, blockZ INT, graphNodeId INT"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,"
        " globalPid INT, graphId INT"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,"
        " globalPid INT, bytes INT, copyKind INT, srcKind INT, dstKind INT"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INT, end INT, globalTid INT, correlationId INT, nameId INT"
    ),
    "NVTX_EVENTS": (
        "start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT, domainId INT"
    ),
    "DIAGNOSTIC_EVENT": "severity INT, text TEXT, globalPid INT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "META_DATA_CAPTURE": "name TEXT, value TEXT",
    "TARGET_INFO_GPU": "id INT, name TEXT, uuid TEXT, totalMemory INT, smCount INT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INT, cudaId INT, pid INT",
}


def shared(*parts: str) -> Path:
    """A file or folder of ../shared, or a skip that says which one is missing."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{'/'.join(parts)} is absent from ../shared")
    return path


def kernel(start: int, end: int, **values: Any) -> dict[str, Any]:
    """One row of the kernel table; text 1 is its name."""
    return {
        "start": start,
        "end": end,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "correlationId": 1,
        "globalPid": GLOBAL_PID,
        "demangledName": 1,
        "gridX": 4,
        "gridY": 1,
        "gridZ": 1,
        "blockX": 32,
        "blockY": 1,
        "blockZ": 1,
        **values,
    }


def launch(start: int, end: int, **values: Any) -> dict[str, Any]:
    """One row of the API table; text 2 is its name."""
    return {
        "start": start,
        "end": end,
        "globalTid": GLOBAL_TID,
        "correlationId": 1,
        "nameId": 2,
        **values,
    }


def nvtx(start: int, end: int | None, text: str | None, **values: Any) -> dict[str, Any]:
    """One push/pop range."""
    return {
        "start": start,
        "end": end,
        "eventType": 59,
        "text": text,
        "globalTid": GLOBAL_TID,
        "domainId": 0,
        **values,
    }


def write_export(path: Path, **tables: list[dict[str, Any]]) -> Path:
    """An export with these tables; a name may end in _V2 as newer exports have it."""
    texts = [{"id": 1, "value": "gemm"}, {"id": 2, "value": "cudaLaunchKernel_v7000"}]
    connection = sqlite3.connect(path)
    for name, rows in {"StringIds": texts, **tables}.items():
        columns = _COLUMNS[name.split("_V")[0]].replace("end INT", '"end" INT')
        connection.execute(f"CREATE TABLE {name}({columns})")
        for row in rows:
            names = ", ".join(f'"{column}"' for column in row)
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {name}({names}) VALUES ({marks})", tuple(row.values()))
    connection.commit()
    connection.close()
    return path


RECORDING = DATA / "nsys" / "h200_block.sqlite.gz"


def busy_ns(capture: Capture, device: int) -> tuple[int, int]:
    """Sum and union of the durations on one device."""
    spans = capture.kernels.filter(pl.col("device") == device).sort("start_ns")
    total = union = 0
    reached = None
    for start, end in spans.select("start_ns", "end_ns").iter_rows():
        total += end - start
        union += max(0, end - (start if reached is None else max(start, reached)))
        reached = end if reached is None else max(reached, end)
    return total, union


def nsys_summary(title: str) -> list[dict[str, str]]:
    """One table of what `nsys stats` printed for the recording."""
    text = (DATA / "nsys" / "h200_block_stats.csv").read_text()
    table = text.split(f"reports/{title}.py]... \n")[1].split("\n\n")[0]
    return list(csv.DictReader(io.StringIO(table)))


@pytest.fixture(scope="module")
def recording() -> Capture:
    return nsys.read(RECORDING)


def test_kernel_totals_are_those_of_nsys_to_the_nanosecond(recording: Capture) -> None:
    kernels = recording.kernels.filter(pl.col("kind") == "kernel")
    ours = kernels.group_by("name").agg(
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total"), pl.len().alias("count")
    )
    theirs = {
        row["Name"]: (int(row["Total Time (ns)"]), int(row["Instances"]))
        for row in nsys_summary("cuda_gpu_kern_sum")
    }
    assert {name: (total, count) for name, total, count in ours.iter_rows()} == theirs


def test_memory_totals_are_those_of_nsys_to_the_nanosecond(recording: Capture) -> None:
    operations = {
        "[CUDA memcpy Host-to-Device]": "Memcpy HtoD",
        "[CUDA memcpy Device-to-Host]": "Memcpy DtoH",
        "[CUDA memcpy Device-to-Device]": "Memcpy DtoD",
        "[CUDA memset]": "Memset",
    }
    for row in nsys_summary("cuda_gpu_mem_time_sum"):
        rows = recording.kernels.filter(
            pl.col("name").str.starts_with(operations[row["Operation"]])
        )
        assert rows.height == int(row["Count"])
        assert (rows["end_ns"] - rows["start_ns"]).sum() == int(row["Total Time (ns)"])
        assert rows["bytes"].null_count() == 0


def test_range_totals_and_their_device_work_are_those_of_nsys(recording: Capture) -> None:
    work = recording.kernels.join(
        recording.launches.select(
            "process", "correlation", pl.col("thread").alias("by"), pl.col("start_ns").alias("at")
        ),
        on=["process", "correlation"],
    ).select("by", "at", pl.col("start_ns").alias("from"), pl.col("end_ns").alias("to"))
    ranges = recording.ranges.filter(pl.col("domain") == "nvtx").with_row_index("range")
    inside = ranges.join_where(
        work,
        pl.col("at") >= pl.col("start_ns"),
        pl.col("at") <= pl.col("end_ns"),
        pl.col("by") == pl.col("thread"),
    )
    projected = inside.group_by("range", "name").agg(
        (pl.col("to").max() - pl.col("from").min()).alias("projected"), pl.len().alias("work")
    )
    for row in nsys_summary("nvtx_gpu_proj_sum"):
        name = row["Range"].removeprefix(":")
        mine = ranges.filter(pl.col("name") == name)
        assert mine.height == int(row["Range Instances"])
        assert (mine["end_ns"] - mine["start_ns"]).sum() == int(row["Total Range Time (ns)"])
        device = projected.filter(pl.col("name") == name)
        assert device["projected"].sum() == int(row["Total Proj Time (ns)"])
        assert device["work"].sum() == int(row["Total GPU Ops"])


def test_the_whole_recording_gives_the_same_tables_as_the_reduced_one(recording: Capture) -> None:
    whole = nsys.read(shared("data", "recordings", "h200_block.nsys.sqlite.gz"))
    for name, frame in whole.tables().items():
        assert frame.equals(recording.table(name)), name
    assert whole.processes[0].fingerprint == recording.processes[0].fingerprint


def test_machine_clock_and_process_come_from_the_export(recording: Capture) -> None:
    (process,) = recording.processes
    (device,) = process.fingerprint.devices
    assert (device.name, device.multiprocessors, device.compute_capability) == (
        "NVIDIA H200",
        132,
        "9.0",
    )
    assert device.maximum_sm_clock_mhz == 1980
    assert device.total_memory_bytes == 150_109_880_320
    assert device.uuid == "GPU-3c059103-4147-783c-d7ff-4413d9480eb0"
    assert process.fingerprint.driver == "580.159.04"
    assert process.process == 785
    assert recording.manifest.clock == "unix epoch"
    assert recording.manifest.created_ns == 1_795_814_256_853_419_922
    assert recording.ranges["start_ns"].min() == 1_795_814_256_853_419_922 + 12_802_020_183


def test_graph_nodes_share_their_launch_and_carry_their_graph() -> None:
    capture = nsys.read(DATA / "nsys" / "h200_cudagraph_nodes.sqlite.gz")
    nodes = capture.kernels.filter(pl.col("graph_id").is_not_null())
    assert nodes.height == 80
    assert nodes["correlation"].n_unique() == 20
    assert nodes["graph_id"].unique().to_list() == [2]
    launched = nodes.join(capture.launches, on=["process", "correlation"])
    assert launched["name_right"].unique().to_list() == ["cudaGraphLaunch"]
    # Launches during the capture of the graph make no work, and that is no loss.
    assert capture.processes[0].warnings == ()


def test_the_shared_plain_case() -> None:
    capture = nsys.read(shared("cases", "nsys-schema", "plain.sqlite"))
    assert busy_ns(capture, 0) == (5000, 4000)
    assert busy_ns(capture, 1) == (1000, 1000)
    joined = capture.kernels.join(capture.launches, on=["rank", "process", "correlation"])
    assert joined.height == 3
    assert sorted(capture.kernels.filter(pl.col("correlation") == 11)["process"]) == [500, 501]
    ends = dict(capture.ranges.select("name", "end_ns").iter_rows())
    assert ends == {"step 1": 450, "open range": None, "forward": 420}
    assert any("never closed" in text for text in capture.processes[0].warnings)


@pytest.mark.parametrize("name", ["no_nvtx", "suffix_v2"])
def test_the_shared_variants_have_the_plain_case_s_kernels(name: str) -> None:
    plain = nsys.read(shared("cases", "nsys-schema", "plain.sqlite"))
    variant = nsys.read(shared("cases", "nsys-schema", f"{name}.sqlite"))
    assert variant.kernels.equals(plain.kernels)
    assert variant.launches.equals(plain.launches)
    expected = plain.ranges if name == "suffix_v2" else plain.ranges.clear()
    assert variant.ranges.equals(expected)


@pytest.mark.parametrize("name", ["api_only", "empty"])
def test_the_shared_cases_without_gpu_work_say_so(name: str) -> None:
    capture = nsys.read(shared("cases", "nsys-schema", f"{name}.sqlite"))
    assert capture.kernels.height == 0
    assert capture.processes[0].warnings[0].startswith("no GPU activity recorded")


def test_the_shared_case_with_times_before_the_session() -> None:
    capture = nsys.read(shared("cases", "nsys-schema", "negative_start.sqlite"))
    assert busy_ns(capture, 0) == (1200, 1200)
    assert capture.kernels["start_ns"].to_list() == [-500, 700]
    assert capture.kernels["correlation"].to_list() == [1, 1]


@pytest.mark.parametrize("name", ["not_sqlite.sqlite", "report.nsys-rep"])
def test_the_shared_unreadable_cases_say_how_to_export(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CaptureError, match="nsys export --type sqlite"):
        nsys.read(shared("cases", "nsys-schema", name))


@pytest.mark.parametrize(
    ("name", "kernels", "ranges", "ranks"),
    [
        ("nsightful_power_iteration", 3689, 786, (0,)),
        ("nsys-ai_mfu_2gpu_before", 4010, 19118, (0, 1)),
        ("nsys-ai_mock", 2, 0, (0,)),
    ],
)
def test_other_people_s_exports_are_read_in_full(
    name: str, kernels: int, ranges: int, ranks: tuple[int, ...]
) -> None:
    capture = nsys.read(shared("data", "public", "nsys", f"{name}.sqlite"))
    assert capture.kernels["kind"].is_in(["kernel", "collective"]).sum() == kernels
    # What torch marked are operators.
    assert capture.ranges.height + capture.ops.height == ranges
    assert capture.manifest.ranks == ranks
    assert (capture.kernels["end_ns"] >= capture.kernels["start_ns"]).all()


def test_an_unsuffixed_table_wins_over_its_newer_versions(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(0, 10)],
        CUPTI_ACTIVITY_KIND_KERNEL_V2=[kernel(0, 20)],
        CUPTI_ACTIVITY_KIND_RUNTIME_V2=[launch(0, 1)],
        CUPTI_ACTIVITY_KIND_RUNTIME_V10=[launch(0, 1), launch(5, 6)],
    )
    capture = nsys.read(path)
    assert capture.kernels["end_ns"].to_list() == [10]
    assert capture.launches.height == 2


def test_processes_with_gpu_work_are_ranks_in_the_order_of_their_ids(tmp_path: Path) -> None:
    later = GLOBAL_PID + (1 << 24)
    idle = GLOBAL_PID + (2 << 24)
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(5, 6, globalPid=later), kernel(7, 8)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[
            launch(0, 1),
            launch(1, 2, globalTid=later + 9),
            launch(2, 3, globalTid=idle + 9),
        ],
    )
    capture = nsys.read(path)
    assert [(p.rank, p.process, p.world_size) for p in capture.processes] == [
        (0, PID, 2),
        (1, PID + 1, 2),
    ]
    assert capture.kernels.select("rank", "process").rows() == [(1, PID + 1), (0, PID)]
    assert sorted(capture.launches["process"]) == [PID, PID + 1]
    assert "1 API calls and NVTX ranges of processes without GPU work" in "; ".join(
        capture.processes[0].warnings
    )


def test_devices_are_numbered_as_each_process_sees_them(tmp_path: Path) -> None:
    other = GLOBAL_PID + (1 << 24)
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(5, 6), kernel(5, 6, globalPid=other)],
        TARGET_INFO_GPU=[{"id": 0, "name": "first"}, {"id": 1, "name": "second"}],
        TARGET_INFO_CUDA_DEVICE=[
            {"gpuId": 0, "cudaId": 0, "pid": PID},
            {"gpuId": 1, "cudaId": 0, "pid": PID + 1},
        ],
    )
    names = [
        [(device.index, device.name) for device in process.fingerprint.devices]
        for process in nsys.read(path).processes
    ]
    assert names == [[(0, "first")], [(0, "second")]]


def test_zero_means_no_correlation_and_no_graph(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, correlationId=0, graphNodeId=0)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(0, 1, correlationId=0)],
    )
    capture = nsys.read(path)
    assert capture.kernels.select("correlation", "graph_id").row(0) == (None, None)
    assert capture.launches["correlation"].to_list() == [None]


def test_a_graph_recorded_whole_counts_once(tmp_path: Path) -> None:
    graph = {
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "globalPid": GLOBAL_PID,
        "graphId": 3,
    }
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(10, 20, correlationId=5, graphNodeId=3 << 32)],
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[
            {**graph, "start": 10, "end": 20, "correlationId": 5},
            {**graph, "start": 30, "end": 45, "correlationId": 6},
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(1, 2, correlationId=5), launch(3, 4, correlationId=6)],
    )
    capture = nsys.read(path)
    assert capture.kernels.select("name", "graph_id", "start_ns").rows() == [
        ("gemm", 3, 10),
        ("CUDA graph 3", 3, 30),
    ]
    assert any("--cuda-graph-trace=node" in text for text in capture.processes[0].warnings)


def test_ranges_take_their_name_from_the_event_or_the_strings_and_their_domain_from_its_creation(
    tmp_path: Path,
) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        StringIds=[{"id": 4, "value": "from strings"}],
        NVTX_EVENTS=[
            nvtx(0, None, "NCCL", eventType=75, domainId=1),
            nvtx(1, 2, "own text"),
            nvtx(3, 4, None, textId=4, domainId=1),
            nvtx(5, 6, None, eventType=60, domainId=2),
            nvtx(7, None, "a mark", eventType=34),
        ],
    )
    assert nsys.read(path).ranges.select("name", "domain").rows() == [
        ("own text", "nvtx"),
        ("from strings", "NCCL"),
        ("", "nvtx domain 2"),
    ]


def test_copies_say_direction_memory_and_bytes(tmp_path: Path) -> None:
    copy = {
        "start": 0,
        "end": 9,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "correlationId": 1,
        "globalPid": GLOBAL_PID,
        "bytes": 4096,
        "copyKind": 1,
        "srcKind": 1,
        "dstKind": 2,
    }
    path = write_export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_MEMCPY=[copy])
    assert nsys.read(path).kernels.select("name", "kind", "bytes").row(0) == (
        "Memcpy HtoD (Pinned -> Device)",
        "memcpy",
        4096,
    )


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData *)",
    ],
)
def test_communication_kernels_are_collectives(tmp_path: Path, name: str) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        StringIds=[{"id": 1, "value": name}],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(0, 1)],
    )
    kernels = nsys.read(path).kernels
    assert kernels.select("kind", "collective").rows() == [("collective", "allreduce")]


def test_lost_launches_and_lost_work_are_counted(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(5, 6), kernel(7, 8, correlationId=2)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[
            launch(0, 1, correlationId=3),
            launch(1, 2),
            launch(2, 3, correlationId=4),
        ],
    )
    assert nsys.read(path).processes[0].warnings == (
        "1 of 2 pieces of device work have no launch recorded",
        "the recording ended before the device work of its last launch",
        "1 of 3 launches (33.3%) have no device work recorded: device time is too low, and what "
        "depends on it is left out",
    )


def test_warnings_of_nsys_about_cuda_and_nvtx_are_passed_on(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(5, 6)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(0, 1)],
        DIAGNOSTIC_EVENT=[
            {"severity": 2, "text": "Not all CUDA events might have been collected."},
            {"severity": 2, "text": "No OpenGL events collected."},
            {"severity": 1, "text": "Number of CUDA events collected: 5."},
            # Of a process without GPU work, of this one, and of the session.
            {"severity": 2, "text": "No CUDA events collected.", "globalPid": 1 << 48 | 7 << 24},
            {"severity": 2, "text": "CUDA buffers overflowed.", "globalPid": GLOBAL_PID},
            {"severity": 2, "text": "GPU lost.", "globalPid": -(1 << 57)},
        ],
    )
    assert nsys.read(path).processes[0].warnings == (
        "Nsight Systems: CUDA buffers overflowed.",
        "Nsight Systems: GPU lost.",
        "Nsight Systems: Not all CUDA events might have been collected.",
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], 10**18 + 7),
        ([("EXPORT_PARAM_TIME_SHIFT", "100")], 10**18 - 93),
        ([("EXPORT_PARAM_TIME_NORMALIZE", "true")], 7),
    ],
)
def test_times_are_put_on_the_unix_epoch_once(
    tmp_path: Path, options: list[tuple[str, str]], expected: int
) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(7, 9)],
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 10**18}],
        META_DATA_EXPORT=[{"name": name, "value": value} for name, value in options],
    )
    assert nsys.read(path).kernels["start_ns"].to_list() == [expected]


def test_the_command_is_kept_without_secrets_and_the_environment_is_not(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        META_DATA_CAPTURE=[
            {"name": "PROCESS_0:COMMAND", "value": "python"},
            {"name": "PROCESS_0:ARGUMENT_0", "value": "train.py"},
            {"name": "PROCESS_0:ARGUMENT_1", "value": "--key=a-secret"},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": "TOKEN=secret"},
        ],
    )
    (process,) = nsys.read(path).processes
    assert process.command == ("python", "train.py", "--key=***")
    assert "secret" not in repr(process)


def test_values_of_a_wrong_type_or_size_are_null_and_impossible_times_are_counted(
    tmp_path: Path,
) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[
            kernel(1, 2, deviceId="zero", gridX=2**40, demangledName=b"\xff"),
            kernel(9, 3),
            kernel("soon", 5),
            kernel(2**62, 2**62 + 1),
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(0, 1)],
    )
    capture = nsys.read(path)
    assert capture.kernels.select("name", "device", "grid_x", "grid_y").rows() == [
        ("(unnamed kernel)", None, None, 1)
    ]
    assert capture.processes[0].warnings == (
        "3 pieces of device work have impossible times and are left out",
    )


def test_text_that_is_not_utf8_is_read_with_replacements(tmp_path: Path) -> None:
    path = write_export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE StringIds SET value = CAST(x'6BFF' AS TEXT) WHERE id = 1")
    connection.commit()
    connection.close()
    assert nsys.read(path).kernels["name"].to_list() == ["k\ufffd"]


def test_views_are_not_run(tmp_path: Path) -> None:
    path = write_export(tmp_path / "a.sqlite")
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE forever(start) AS"
        " (SELECT 1 UNION ALL SELECT start FROM forever) SELECT start FROM forever"
    )
    connection.commit()
    connection.close()
    assert nsys.read(path).kernels.height == 0


def test_the_export_is_not_changed_and_may_be_read_only(tmp_path: Path) -> None:
    path = write_export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2)])
    before = path.read_bytes()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        nsys.read(path)
    finally:
        tmp_path.chmod(0o700)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]


def test_another_program_s_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "songs.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs(title TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(CaptureError, match="not of Nsight Systems"):
        nsys.read(path)


def test_a_cut_off_export_is_refused_under_the_name_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "cut.sqlite.gz"
    path.write_bytes(gzip.compress(gzip.decompress(RECORDING.read_bytes())[:100_000]))
    with pytest.raises(CaptureError, match="damaged SQLite file") as caught:
        nsys.read(path)
    assert str(caught.value).startswith(f"{path}")
    assert caught.value.path == path


def test_a_cut_off_gzip_stream_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.sqlite.gz"
    path.write_bytes(RECORDING.read_bytes()[:20_000])
    with pytest.raises(CaptureError, match="gzip"):
        nsys.read(path)


def test_a_decompression_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.sqlite.gz"
    # 320 MB in 0.3 MB: a gzip file may hold one stream after another.
    path.write_bytes(gzip.compress(bytes(2**20)) * 320)
    with pytest.raises(CaptureError, match="times its size"):
        nsys.read(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="No such file"):
        nsys.read(tmp_path / "absent.sqlite")


def fake_nsys(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nsys"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_report_is_exported_where_nsys_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = write_export(tmp_path / "made.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 4)])
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report")
    fake_nsys(tmp_path, f'[ "$2 $3" = "--type sqlite" ] && cp {export} "$5"', monkeypatch)
    capture = nsys.read(report)
    assert capture.manifest.title == "run"
    assert capture.kernels["end_ns"].to_list() == [4]


def test_what_nsys_says_of_a_bad_report_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report")
    fake_nsys(tmp_path, "echo 'Importer error: bad file' >&2; exit 1", monkeypatch)
    with pytest.raises(CaptureError, match="Importer error: bad file"):
        nsys.read(report)


def test_threads_and_processes_are_the_operating_system_s(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(0, 1)],
        NVTX_EVENTS=[nvtx(0, 1, "step")],
    )
    capture = nsys.read(path)
    assert capture.launches.select("process", "thread", "name").row(0) == (
        PID,
        GLOBAL_TID & 0xFFFFFF,
        "cudaLaunchKernel",
    )
    assert capture.ranges.select("process", "thread").row(0) == (PID, 501)
