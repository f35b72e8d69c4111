"""Each small trace that made other tools fail, read right. The traces are in tests/data/kineto."""

import json
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.kineto.foreign import foreign_traces

DATA = Path(__file__).parents[1] / "data" / "kineto"
BASE_NS = 1_700_000_000_000_000_000


def read(name: str) -> Capture:
    return kineto.read(DATA / f"{name}.json")


def durations_us(capture: Capture) -> dict[str, float]:
    """Device time by kind of work."""
    duration = (pl.col("end_ns") - pl.col("start_ns")).sum() / 1000
    return dict(capture.kernels.group_by("kind").agg(duration).iter_rows())


def warnings(capture: Capture) -> str:
    return "\n".join(capture.processes[0].warnings)


def test_rocm_kernels_are_told_by_name_and_a_correlation_of_0_is_none() -> None:
    capture = read("amd-rccl")
    assert durations_us(capture) == {"kernel": 8, "collective": 50, "memcpy": 4, "memset": 2}
    assert capture.kernels["correlation"].to_list() == [77, None, 90, 91]
    assert capture.kernels["stream"].to_list() == [0, 1, 0, 0]
    (device,) = capture.processes[0].fingerprint.devices
    assert (device.kind, device.warp_size, device.compute_capability) == ("hip", 64, None)


def test_a_graph_replay_keeps_all_its_kernels_with_one_correlation() -> None:
    capture = read("cuda-graph")
    assert durations_us(capture) == {"kernel": 35}
    assert capture.kernels["correlation"].to_list() == [500] * 3
    assert capture.kernels["graph_id"].to_list() == [3] * 3
    assert capture.ranges.select("name", "domain").rows() == [("decode", "record_function")]


def test_annotations_and_waits_on_device_rows_are_not_device_work() -> None:
    capture = read("gpu-annotation-and-sync")
    assert capture.kernels.height == 2
    assert durations_us(capture) == {"kernel": 40, "collective": 60}
    assert capture.kernels["end_ns"].max() - capture.kernels["start_ns"].min() == 60_000


def test_epoch_microseconds_with_decimals_are_exact_to_the_nanosecond() -> None:
    kernels = read("huge-ts").kernels
    start = 1_753_000_000_123_456_001
    assert kernels["start_ns"].to_list() == [start, start + 999, start + 1499]
    assert kernels["end_ns"].to_list() == [start + 999, start + 1499, start + 1749]


def test_invalid_utf8_is_replaced_and_reported() -> None:
    capture = read("invalid-utf8")
    assert durations_us(capture) == {"kernel": 8}
    assert "\ufffd" in capture.kernels["name"][0]
    assert "invalid UTF-8 sequence" in warnings(capture)


@pytest.mark.parametrize(
    ("name", "finding"),
    [("json-backslash", "2 illegal escapes"), ("json-control-char", "2 raw control characters")],
)
def test_illegal_text_in_a_string_is_repaired_and_reported(name: str, finding: str) -> None:
    capture = read(name)
    assert finding in warnings(capture)
    assert durations_us(capture) == {"kernel": 8}
    (op,) = capture.ops.select("name", "input_dims").rows()
    assert op == ("aten::mm", "[[64, 32], [32, 16]]")


def test_categories_and_keys_of_2020_are_read() -> None:
    capture = read("legacy-categories")
    assert durations_us(capture) == {"kernel": 8, "memcpy": 4}
    assert capture.kernels["bytes"].to_list() == [None, 4096]
    assert capture.kernels["stream"].to_list() == [7, 7]
    assert capture.ops["input_dims"].to_list() == ["[[64, 32], [32, 16]]"]
    assert capture.launches.select("thread", "correlation").rows() == [(100, 7)]
    assert capture.kernels["start_ns"][0] == 40_000
    assert capture.manifest.clock == "unknown start"


def test_numbers_that_are_not_finite_are_missing() -> None:
    capture = read("nan-inf-tokens")
    assert durations_us(capture) == {"kernel": 15}
    assert "3 non-finite numbers" in warnings(capture)


def test_a_message_is_the_larger_buffer_times_the_size_of_an_element() -> None:
    kernels = read("nccl-factors").kernels
    assert kernels.select("collective", "message_bytes", "group_size").rows() == [
        ("allreduce", 67108864, 8),
        ("_allgather_base", 33554432, 8),
        ("_reduce_scatter_base", 33554432, 8),
        ("all_to_all", 16777216, 8),
        ("broadcast", 33554432, 8),
        ("all_to_allv", 33554432, 8),
        ("send", 33554432, 8),
        ("allreduce", 4, 1),
        # Without metadata the name tells which collective it is, and no more.
        ("allgather", None, None),
        ("allreduce", None, None),
        ("allreduce", None, None),
    ]
    assert kernels["kind"].to_list() == ["collective"] * 11


def test_an_unknown_dtype_leaves_the_message_unknown(tmp_path: Path) -> None:
    text = (DATA / "nccl-factors.json").read_text().replace('"Float"', '"Quad"')
    (tmp_path / "t.json").write_text(text)
    capture = kineto.read(tmp_path / "t.json")
    assert capture.kernels["message_bytes"][0] is None
    assert "2 collectives of unknown dtype Quad" in warnings(capture)


def test_ranks_meet_on_the_clock_of_their_base_times() -> None:
    kernels = [read(f"nccl-straggler-rank{rank}").kernels for rank in (0, 1)]
    assert [frame["rank"][0] for frame in kernels] == [0, 1]
    first, second = (frame.row(0, named=True) for frame in kernels)
    assert first["end_ns"] == second["end_ns"]
    assert second["start_ns"] - first["start_ns"] == 8_000_000


def test_nested_operators_have_their_parents() -> None:
    ops = read("nested-ops").ops
    assert ops.select("op_id", "parent_id", "name").rows() == [
        (0, None, "aten::linear"),
        (1, 0, "aten::matmul"),
        (2, 1, "aten::mm"),
    ]


def test_streams_overlap_on_the_common_clock() -> None:
    kernels = read("overlap-union").kernels
    assert (kernels["end_ns"] - kernels["start_ns"]).sum() == 250_000
    assert kernels["end_ns"].max() - kernels["start_ns"].min() == 250_000
    assert kernels["start_ns"].min() >= BASE_NS


def test_python_stacks_tell_which_operators_were_recomputed() -> None:
    ops = read("recompute").ops
    assert ops["recompute"].to_list() == [False, True, False, False, False]


def test_without_python_stacks_recompute_is_unknown() -> None:
    assert read("nested-ops").ops["recompute"].to_list() == [None] * 3


def test_nanoseconds_survive_and_a_negative_duration_is_left_out() -> None:
    capture = read("sub-us-rounding")
    kernels = capture.kernels.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    assert kernels.select("name", "ns").rows() == [("tiny", 200), ("tiny", 300), ("zero", 0)]
    assert "1 event with a negative duration was left out" in warnings(capture)


def test_malformed_events_are_counted_and_numbers_as_text_are_read() -> None:
    capture = read("bad-events")
    (kernel,) = capture.kernels.select("start_ns", "end_ns").rows()
    assert kernel == (BASE_NS + 12_500, BASE_NS + 15_500)
    assert "3 malformed events" in warnings(capture)
    assert "phase B" in warnings(capture)


def test_leaf_operators_are_the_work_of_a_run_without_a_gpu() -> None:
    capture = read("cpu-only")
    assert durations_us(capture) == {"op": 50}
    assert "No GPU activity in the trace" in warnings(capture)
    assert [d.kind for d in capture.processes[0].fingerprint.devices] == ["cpu"]


def test_missing_shapes_are_reported_with_the_way_to_get_them() -> None:
    capture = read("no-shapes")
    assert not capture.processes[0].shapes_recorded
    assert "record_shapes=True" in warnings(capture)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"traceEvents": []}', '{"traceEvents": null}'])
def test_a_trace_without_events_is_refused_saying_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(CaptureError, match="no events"):
        kineto.read(path)


def test_what_is_not_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 20)
    with pytest.raises(CaptureError, match="not a profiler trace"):
        kineto.read(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no such file"):
        kineto.read(tmp_path / "absent.json")


def test_a_training_step_has_steps_ranges_and_allocations() -> None:
    capture = kineto.read(DATA / "h100_block_train_bf16.json.gz")
    assert capture.steps.select("index", "phase", "found_by").rows() == [
        (index, "profiled", "ProfilerStep annotations") for index in capture.steps["index"]
    ]
    assert (capture.steps["host_ns"] == capture.steps["end_ns"] - capture.steps["start_ns"]).all()
    assert not capture.ranges["name"].str.starts_with("ProfilerStep").any()
    assert {"cpu", "device"} == set(capture.allocations["category"])
    assert capture.processes[0].shapes_recorded
    assert capture.processes[0].fingerprint.devices[0].multiprocessors == 132
    assert capture.manifest.clock == "unix epoch"


def trace_of(path: Path, events: list[dict[str, object]], **fields: object) -> Capture:
    """Read a trace of complete events; each has process 1 and thread 1 unless it says."""
    complete = [{"ph": "X", "pid": 1, "tid": 1, "dur": 1, "args": {}, **event} for event in events]
    path.write_text(json.dumps({**fields, "traceEvents": complete}))
    return kineto.read(path)


OP = {"cat": "cpu_op", "name": "aten::relu", "ts": 1}


def test_launches_without_device_events_are_no_run_on_the_cpu(tmp_path: Path) -> None:
    launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1}
    capture = trace_of(tmp_path / "t.json", [OP, launch])
    assert capture.kernels.is_empty()
    assert "CUPTI recorded none" in warnings(capture)


def test_events_of_another_accelerator_are_named_and_no_run_on_the_cpu(tmp_path: Path) -> None:
    capture = trace_of(
        tmp_path / "t.json", [OP, {"cat": "mtia_ccp_events", "name": "run", "ts": 1}]
    )
    assert capture.kernels.is_empty()
    assert "1 event of kinds that are not read: mtia_ccp_events" in warnings(capture)


def test_runtime_calls_that_launch_nothing_leave_it_a_run_on_the_cpu(tmp_path: Path) -> None:
    query = {"cat": "cuda_runtime", "name": "cudaGetDeviceCount", "ts": 1}
    assert trace_of(tmp_path / "t.json", [OP, query]).kernels["kind"].to_list() == ["op"]


def test_of_two_operators_that_start_and_end_together_the_first_called_is_outer(
    tmp_path: Path,
) -> None:
    inner = {**OP, "name": "aten::t", "args": {"External id": 9}}
    outer = {**OP, "name": "aten::linear", "args": {"External id": 3}}
    ops = trace_of(tmp_path / "t.json", [inner, outer]).ops
    assert ops.select("name", "parent_id").rows() == [("aten::linear", None), ("aten::t", 0)]


def test_steps_written_as_operators_are_steps(tmp_path: Path) -> None:
    step = {"cat": "Operator", "name": "ProfilerStep#7", "ts": 0, "dur": 9}
    capture = trace_of(tmp_path / "t.json", [step, OP])
    assert capture.steps.select("index", "host_ns").rows() == [(7, 9000)]
    assert capture.ops["name"].to_list() == ["aten::relu"]


def test_allocations_find_their_operator_and_device(tmp_path: Path) -> None:
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]"}
    on_device = {"Bytes": -8, "Total Allocated": 16, "Device Type": 1, "Device Id": 3}
    on_host = {"Bytes": 4, "Total Allocated": 4, "Device Type": 0, "Device Id": -1}
    capture = trace_of(
        tmp_path / "t.json",
        [
            {**OP, "dur": 10},
            {**memory, "ts": 5, "args": on_device},
            {**memory, "ts": 50, "args": on_host},
        ],
    )
    assert capture.allocations.select("bytes", "total", "device", "category", "op_id").rows() == [
        (-8, 16, 3, "device", 0),
        (4, 4, None, "cpu", None),
    ]


def test_a_number_too_large_for_its_column_is_missing(tmp_path: Path) -> None:
    kernel = {"cat": "kernel", "name": "k", "ts": 1}
    args = {"registers per thread": 2**40, "correlation": 2**70, "stream": 2**40, "device": 0}
    (row,) = trace_of(tmp_path / "t.json", [{**kernel, "args": args}]).kernels.to_dicts()
    assert (row["registers"], row["correlation"], row["stream"]) == (None, None, 2**40)


@pytest.mark.parametrize("base", [-1, 2**63, "soon", 10**19])
def test_an_implausible_base_time_is_ignored_saying_so(tmp_path: Path, base: object) -> None:
    capture = trace_of(tmp_path / "t.json", [OP], baseTimeNanoseconds=base)
    assert capture.ops["start_ns"].to_list() == [1000]
    assert "baseTimeNanoseconds is not a plausible time" in warnings(capture)


@pytest.mark.parametrize("time", [1e300, 5e15, "noon", None, True])
def test_an_event_without_a_plausible_time_is_left_out(tmp_path: Path, time: object) -> None:
    capture = trace_of(tmp_path / "t.json", [OP, {**OP, "ts": time}])
    assert capture.ops.height == 1
    assert "1 malformed event" in warnings(capture)


def test_the_device_is_the_one_that_ran_the_kernels(tmp_path: Path) -> None:
    kernel = {"cat": "kernel", "name": "k", "ts": 1, "args": {"device": 5}}
    devices = [{"id": 4, "name": "A"}, {"id": 5, "name": "B"}]
    capture = trace_of(tmp_path / "t.json", [kernel], deviceProperties=devices)
    (info,) = capture.processes
    assert info.fingerprint.devices[info.device].name == "B"


MEMORY = {"cat": "cpu_instant_event", "name": "[memory]", "ph": "i", "ts": 1}


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (OP, {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2}}),
        (OP, {"distributedInfo": {"backend": "hccl", "rank": 0, "world_size": 2}}),
        ({**OP, "name": "aten::cudnn_convolution"}, {}),
        ({**OP, "name": "npu::npu_format_cast"}, {}),
        ({**MEMORY, "args": {"Bytes": 8, "Device Type": 1, "Device Id": 0}}, {}),
        ({"cat": None, "name": "matmul", "ts": 2, "args": {"Stream Id": 2}}, {}),
        ({"cat": "npu_kernel", "name": "matmul", "ts": 2}, {}),
        ({"cat": "gpu_op", "name": "matmul", "ts": 2, "args": {"stream": 2}}, {}),
    ],
    ids=lambda value: json.dumps(value),
)
def test_what_speaks_for_a_device_makes_it_no_run_on_a_cpu(
    event: dict[str, object], fields: dict[str, object], tmp_path: Path
) -> None:
    capture = trace_of(tmp_path / "t.json", [OP, event], **fields)
    assert capture.kernels.is_empty()
    assert capture.processes[0].fingerprint.devices == ()
    assert "No device event in the trace that is read" in warnings(capture)


@pytest.mark.parametrize("backend", ["gloo", "mpi", "cpu:gloo,cuda:nccl", None])
def test_backends_that_run_on_a_cpu_leave_it_a_run_on_the_cpu(
    backend: str | None, tmp_path: Path
) -> None:
    info = {"backend": backend, "rank": 0, "world_size": 2}
    capture = trace_of(tmp_path / "t.json", [OP], distributedInfo=info)
    assert capture.kernels["kind"].to_list() == ["op"]


ASCEND = "a trace of torch_npu"
FOREIGN = {
    "ascend process": (
        ASCEND,
        {"ph": "M", "name": "process_name", "pid": 832, "args": {"name": "Ascend Hardware"}},
    ),
    "ascend arrow": (
        ASCEND,
        {"ph": "s", "cat": "async_npu", "name": "async_npu", "id": "1", "pid": 1, "ts": "1.5"},
    ),
    "gaudi": (
        "a trace of Intel Gaudi",
        {"ph": "X", "cat": "hpu_op", "name": "launch", "pid": 1, "tid": 1, "ts": 1, "dur": 2},
    ),
    "unitrace": (
        "a trace of Intel's unitrace",
        {"ph": "M", "name": "process_name", "pid": 1, "ts": 1, "args": {"name": "HOST<node7>"}},
    ),
}


@pytest.mark.parametrize(("message", "mark"), FOREIGN.values(), ids=FOREIGN)
def test_a_trace_of_another_tool_is_refused_saying_so(
    message: str, mark: dict[str, object], tmp_path: Path
) -> None:
    op = {**OP, "ph": "X", "pid": 1, "tid": 1, "dur": 1}
    path = tmp_path / "t.json"
    path.write_text(json.dumps([op, mark]))
    with pytest.raises(CaptureError, match=message) as raised:
        kineto.read(path)
    assert raised.value.remedy


def test_every_kind_of_foreign_trace_is_tried() -> None:
    names = [message for message, _ in FOREIGN.values()]
    for row in foreign_traces():
        assert any(row.name.startswith(name) for name in names)
        assert row.source


def test_work_of_an_intel_gpu_is_read_and_its_name_is_missing(tmp_path: Path) -> None:
    """As libkineto's XPU plug-in writes it: a queue in place of a stream, and no properties."""
    launch = {"cat": "xpu_runtime", "name": "urEnqueueKernelLaunch", "ts": 2, "dur": 1}
    kernel = {"cat": "kernel", "name": "gemm_kernel", "pid": 0, "tid": 64, "ts": 5, "dur": 9}
    queue = {"correlation": 7, "device": 0, "sycl queue": 64, "kernel_id": 5}
    capture = trace_of(
        tmp_path / "t.json",
        [OP, {**launch, "args": {"correlation": 7}}, {**kernel, "args": queue}],
        deviceProperties=[],
    )
    assert capture.kernels.select("name", "device", "stream", "correlation").rows() == [
        ("gemm_kernel", 0, 64, 7)
    ]
    assert "An Intel GPU (XPU) did the work." in warnings(capture)


@pytest.mark.parametrize("name", ["aten::_mps_convolution", "aten::_lstm_mps", "hpu::cast"])
def test_operators_of_other_devices_make_no_run_on_a_cpu(name: str, tmp_path: Path) -> None:
    capture = trace_of(tmp_path / "t.json", [{**OP, "name": name}])
    assert "No device event in the trace that is read" in warnings(capture)
    assert ("An Apple GPU (MPS) did the work." in warnings(capture)) == ("mps" in name)


def test_an_event_that_lacks_only_its_category_is_not_called_malformed(tmp_path: Path) -> None:
    complete = {"name": "mine", "ts": 2, "dur": 5}
    capture = trace_of(tmp_path / "t.json", [OP, complete, complete])
    assert "2 events without a category (cat) were left out" in warnings(capture)
    assert "malformed" not in warnings(capture)
    assert capture.kernels["kind"].to_list() == ["op"]


@pytest.mark.parametrize("dims", [[[]], [[], []], [[4, 4], []], [[[2, 3], [4]]]])
def test_shapes_of_scalars_are_shapes(dims: list[object], tmp_path: Path) -> None:
    capture = trace_of(tmp_path / "t.json", [{**OP, "args": {"Input Dims": dims}}])
    assert capture.processes[0].shapes_recorded
    assert "No operator shapes" not in warnings(capture)


@pytest.mark.parametrize("args", [{}, {"Input Dims": []}, {"Input Dims": None}])
def test_operators_without_shapes_are_said(args: dict[str, object], tmp_path: Path) -> None:
    capture = trace_of(tmp_path / "t.json", [{**OP, "args": args}])
    assert "No operator shapes in the trace" in warnings(capture)
