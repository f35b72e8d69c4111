import json
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from gpuprof.collectors import kineto, nsys, schema, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Manifest, ProcessInfo
from gpuprof.reports.chrome.rows import crossing, device_offset, kernel_rows
from gpuprof.reports.chrome.trace import chrome_trace
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.ranks.summarise import all_summaries
from gpuprof.roofline.work.attribution import attribute

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDINGS = [
    "h100_block_train_bf16.json.gz",
    "h100_block_infer_fp16.json.gz",
    "h100_block_cudagraph.json.gz",
    "nccl-factors.json",
    "amd-rccl.json",
    "cpu-only.json",
    "huge-ts.json",
    "overlap-union.json",
]

Event = dict[str, Any]


@cache
def recording(name: str) -> Capture:
    return attribute(kineto.read(DATA / "kineto" / name))


@cache
def analysed(name: str) -> Analysis:
    return analyze(recording(name))


@cache
def recorded_text(name: str) -> str:
    return b"".join(chrome_trace([(recording(name), analysed(name))])).decode()


def recorded_events(name: str) -> list[Event]:
    events: list[Event] = json.loads(recorded_text(name), parse_float=Decimal)["traceEvents"]
    return events


def text_of(capture: Capture) -> str:
    return b"".join(chrome_trace([(capture, analyze(capture))])).decode()


def events_of(capture: Capture) -> list[Event]:
    events: list[Event] = json.loads(text_of(capture), parse_float=Decimal)["traceEvents"]
    return events


def read_back(capture: Capture, folder: Path) -> Capture:
    file = folder / "written.json"
    file.write_text(text_of(capture))
    return attribute(kineto.read(file))


def small_capture(**tables: list[Event]) -> Capture:
    """A capture of one rank with these rows; what a row does not say is null."""
    frames = {
        name: pl.DataFrame([{"rank": 0, **row} for row in rows], schema=schema.TABLES[name])
        for name, rows in tables.items()
    }
    manifest = Manifest(tool_version="0", source="test", title="small", created_ns=0)
    return attribute(Capture(manifest, (ProcessInfo(process=1),), **frames))


def kernel(start: int, end: int, **columns: Any) -> Event:
    place = {"process": 1, "device": 0, "context": 1, "stream": 7}
    return {"start_ns": start, "end_ns": end, "name": "k", "kind": "kernel", **place, **columns}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_trace_read_back_has_equal_tables_and_analysis(name: str, tmp_path: Path) -> None:
    capture = recording(name)
    file = tmp_path / "written.json"
    file.write_text(recorded_text(name))
    again = attribute(kineto.read(file))
    for table, frame in capture.tables().items():
        assert again.table(table).equals(frame), table
    first, second = analysed(name), analyze(again)
    assert msgspec.structs.replace(second, title=first.title, created_ns=0) == (
        msgspec.structs.replace(first, created_ns=0)
    )


def test_kernels_and_ranges_of_another_tool_read_back(tmp_path: Path) -> None:
    capture = attribute(nsys.read(DATA / "nsys" / "h200_block.sqlite.gz"))
    again = read_back(capture, tmp_path)
    assert again.kernels.equals(capture.kernels)
    assert again.launches.equals(capture.launches)
    # A trace of this form names no domain, nor whether another thread may end a range.
    untold = ("domain", "across_threads")
    assert again.ranges.drop(untold).equals(capture.ranges.drop(untold))


def test_times_are_decimals_of_whole_nanoseconds(tmp_path: Path) -> None:
    start = 1_800_000_000_123_456_789
    capture = small_capture(
        kernels=[kernel(start, start + 1), kernel(start + 10**12 + 1, start + 10**13)]
    )
    text = text_of(capture)
    assert f'"baseTimeNanoseconds": {start}' in text
    assert '"ts":0.000,"args"' in text
    assert '"dur":0.001' in text
    assert '"ts":1000000000.001' in text
    again = read_back(capture, tmp_path)
    assert again.kernels["start_ns"].to_list() == capture.kernels["start_ns"].to_list()
    assert again.kernels["end_ns"].to_list() == capture.kernels["end_ns"].to_list()


def test_times_before_the_clock_began(tmp_path: Path) -> None:
    capture = small_capture(kernels=[kernel(-1_234_567, -1_000_001), kernel(5, 6)])
    assert '"ts":-1234.567' in text_of(capture)
    assert read_back(capture, tmp_path).kernels["end_ns"].to_list() == [-1_000_001, 6]


def test_a_kernel_says_its_work_class_roof_and_step() -> None:
    capture = recording("h100_block_train_bf16.json.gz")
    analysis = analysed("h100_block_train_bf16.json.gz")
    kernels = [
        event
        for event in recorded_events("h100_block_train_bf16.json.gz")
        if event["cat" if "cat" in event else "ph"] == "kernel"
    ]
    products = [event for event in kernels if event["args"].get("op") == "aten::mm"]
    assert {event["args"]["step"] for event in products} == set(capture.steps["index"])
    for event in products:
        args = event["args"]
        assert args["flops"] > 10**9
        assert args["bytes_read"] > 10**6
        assert args["bytes_written"] > 10**6
        assert args["bottleneck"] == "compute"
        assert args["roof"]
        assert 0.5 < args["roof_fraction"] < 1
    # The counts of single launches add up to those of the whole.
    written = sum(event["args"]["flops"] for event in products)
    points = [point for point in analysis.kernels if point.op == "aten::mm"]
    assert written == sum(point.total_flops or 0 for point in points)


def test_a_leaf_operator_of_a_cpu_run_says_its_work() -> None:
    (product,) = [e for e in recorded_events("cpu-only.json") if e["name"] == "aten::mm"]
    assert product["cat"] == "cpu_op"
    assert product["args"]["flops"] == 65536


@pytest.mark.parametrize("name", RECORDINGS)
def test_slices_of_a_row_nest_or_keep_apart(name: str) -> None:
    rows: dict[tuple[int, int], list[tuple[Decimal, Decimal]]] = defaultdict(list)
    for event in recorded_events(name):
        if event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            rows[event["pid"], event["tid"]].append(span)
    for spans in rows.values():
        open_ends: list[Decimal] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_an_arrow_leads_from_inside_each_launch_to_its_kernel() -> None:
    capture = recording("h100_block_train_bf16.json.gz")
    events = recorded_events("h100_block_train_bf16.json.gz")
    slices = {
        (event["pid"], event["tid"], event["ts"]): event for event in events if event["ph"] == "X"
    }
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = [event for event in events if event["ph"] == "f"]
    assert len(starts) == len(ends) == capture.kernels.height
    for end in ends:
        assert end["bp"] == "e"
        start = starts[end["id"]]
        launch = slices[start["pid"], start["tid"], start["ts"]]
        work = slices[end["pid"], end["tid"], end["ts"]]
        assert launch["args"]["correlation"] == work["args"]["correlation"]
        assert events.index(launch) < events.index(start)


def test_the_kernels_of_a_graph_replay_each_have_an_arrow() -> None:
    capture = recording("h100_block_cudagraph.json.gz")
    events = recorded_events("h100_block_cudagraph.json.gz")
    ids = [event["id"] for event in events if event["ph"] == "s"]
    assert len(ids) == len(set(ids)) > capture.launches.height


def test_overlapping_kernels_of_a_stream_get_rows_of_their_own() -> None:
    kernels = small_capture(
        kernels=[
            kernel(0, 10),
            kernel(5, 15),
            kernel(10, 12),
            kernel(20, 30, context=2),
            kernel(20, 30, stream=8),
            kernel(20, 30, device=1),
        ]
    ).kernels
    rows, labels = kernel_rows(kernels)
    named = {(device, row): label for device, row, label in labels.iter_rows()}
    assert [named[device, row] for device, row in zip(kernels["device"], rows, strict=True)] == [
        "stream 7",
        "stream 7, overlapping 1",
        "stream 7",
        "stream 7, context 2",
        "stream 8",
        "stream 7",
    ]
    assert len(named) == labels.height == 5


def test_a_device_does_not_share_its_number_with_a_process() -> None:
    assert device_offset(pl.Series([4000, 4001]), pl.Series([0, 1])) == 0
    assert device_offset(pl.Series([1, 17]), pl.Series([0, 1])) == 18
    capture = small_capture(
        kernels=[kernel(0, 1, device=1, correlation=3)],
        launches=[
            {
                "name": "cudaLaunchKernel",
                "process": 1,
                "thread": 1,
                "start_ns": 0,
                "end_ns": 1,
                "correlation": 3,
            }
        ],
    )
    by_category = {event.get("cat"): event["pid"] for event in events_of(capture)}
    assert by_category["cuda_runtime"] != by_category["kernel"]


def test_crossing_and_unended_ranges_are_shown_beside_the_threads(tmp_path: Path) -> None:
    spans = [("outer", 0, 100), ("inner", 10, 20), ("crossing", 50, 150), ("open", 60, None)]
    capture = small_capture(
        ranges=[
            {
                "name": name,
                "domain": "d",
                "process": 1,
                "thread": 2,
                "start_ns": start,
                "end_ns": end,
            }
            for name, start, end in spans
        ],
        kernels=[kernel(0, 1)],
    )
    assert crossing(capture.ranges).to_list() == [False, False, True, False]
    phases = [(event["name"], event["ph"]) for event in events_of(capture) if event["ph"] in "Xbe"]
    assert phases[:5] == [
        ("outer", "X"),
        ("inner", "X"),
        ("crossing", "b"),
        ("crossing", "e"),
        ("open", "b"),
    ]
    assert read_back(capture, tmp_path).ranges["name"].to_list() == ["outer", "inner"]


def test_only_profiled_steps_are_read_back_as_steps(tmp_path: Path) -> None:
    us = 1000
    steps = [
        {"index": 0, "start_ns": 0, "end_ns": 10 * us, "phase": "warmup", "host_ns": 10},
        {"index": 1, "start_ns": 10 * us, "end_ns": 20 * us, "phase": "timed", "host_ns": 10},
        {"index": 2, "start_ns": 20 * us, "end_ns": 30 * us, "phase": "profiled", "host_ns": 10},
    ]
    capture = small_capture(steps=steps, kernels=[kernel(21 * us, 25 * us)])
    names = [event["name"] for event in events_of(capture) if event["ph"] == "X"]
    assert names[:3] == ["warmup step 0", "timed step 1", "ProfilerStep#2"]
    again = read_back(capture, tmp_path)
    assert again.steps.select("index", "start_ns", "end_ns").rows() == [(2, 20 * us, 30 * us)]
    assert not [text for text in again.processes[0].warnings if "not read" in text]
    # What a viewer shows beside the recording is not taken for a span of it.
    assert not [text for text in again.processes[0].warnings if "recording stopped" in text]


def test_device_samples_are_counters() -> None:
    capture = small_capture(
        samples=[{"time_ns": 1500, "device": 0, "sm_clock_mhz": 1980, "power_milliwatts": 70000}],
        kernels=[kernel(0, 1)],
    )
    counters = [event for event in events_of(capture) if event["ph"] == "C"]
    assert [(event["name"], event["args"]) for event in counters] == [
        ("SM clock", {"MHz": 1980}),
        ("Power", {"mW": 70000}),
    ]
    assert {event["ts"] for event in counters} == {Decimal("1.500")}


def test_names_and_lists_of_a_foreign_capture_stay_valid_json() -> None:
    op = {"op_id": 0, "name": 'a"\\\n\u2028</script>', "process": 1, "thread": 1}
    capture = small_capture(
        ops=[{**op, "start_ns": 0, "end_ns": 1, "input_dims": "[[2,", "input_types": '["float"]'}]
    )
    (written,) = [event for event in events_of(capture) if event.get("cat") == "cpu_op"]
    assert written["name"] == op["name"]
    assert written["args"]["Input Dims"] == "[[2,"
    assert written["args"]["Input type"] == ["float"]


def test_gaps_say_why_the_device_has_no_work() -> None:
    analysis = analysed("h100_block_train_bf16.json.gz")
    assert analysis.idle is not None
    events = recorded_events("h100_block_train_bf16.json.gz")
    gaps = [event for event in events if event.get("args", {}).get("waits")]
    by_class: dict[str, Decimal] = defaultdict(Decimal)
    for gap in gaps:
        assert gap["cat"] == "gpuprof"
        assert gap["name"].startswith(f"{gap['args']['waits']}: ")
        by_class[gap["args"]["waits"]] += gap["dur"]
    expected: dict[str, int] = defaultdict(int)
    for part in (part for step in analysis.idle.profiled_steps for part in step):
        expected[part.kind] += part.nanoseconds
    assert {kind: int(us * 1000) for kind, us in by_class.items()} == expected
    # They have a row of their own on the device.
    (place,) = {(gap["pid"], gap["tid"]) for gap in gaps}
    names = [event for event in events if event["name"] == "thread_name"]
    assert [e["args"]["name"] for e in names if (e["pid"], e["tid"]) == place] == ["no device work"]


def test_kernels_and_rows_say_module_and_line() -> None:
    place = {"module": "layers.0", "file": "train.py", "line": 3}
    call = {"process": 1, "thread": 1, "start_ns": 0, "end_ns": 9}
    capture = small_capture(
        ops=[{"op_id": 0, "name": "aten::mm", **call, **place}],
        launches=[{"name": "cudaLaunchKernel", "correlation": 3, **call}],
        kernels=[kernel(10, 20, correlation=3)],
    )
    events = events_of(capture)
    (work,) = [event for event in events if event.get("cat") == "kernel"]
    assert (work["args"]["module"], work["args"]["line"]) == ("layers.0", "train.py:3")
    visits = [event for event in events if event.get("cat") == "gpuprof"]
    assert [(e["name"], e["ts"], e["dur"]) for e in visits if "layers" in e["name"]] == [
        ("layers", 0, Decimal("0.009")),
        ("layers.0", 0, Decimal("0.009")),
    ]


def test_ranks_of_one_trace_have_numbers_of_their_own_and_one_clock(tmp_path: Path) -> None:
    # The other rank's clock is 5 s ahead; both have numbered their threads and ids for themselves.
    recorded = attribute(storage.load(DATA / "ranks" / "gloo2_fsdp_work"))
    later = pl.when(pl.col("rank") == 1).then(5 * 10**9).otherwise(0)
    capture = replace(
        recorded,
        **{
            name: frame.with_columns(
                pl.col(column) + later
                for column in ("start_ns", "end_ns", "time_ns")
                if column in frame.columns
            )
            for name, frame in recorded.tables().items()
        },
    )
    own = [capture.rank(rank) for rank in capture.manifest.ranks]
    summaries = all_summaries(capture)
    analyses = [analyze(capture, rank=rank, summaries=summaries) for rank in capture.manifest.ranks]
    text = b"".join(chrome_trace(list(zip(own, analyses, strict=True)))).decode()
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    named = {
        event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"
    }
    assert sorted(name.split(",")[0] for name in named.values()) == [
        f"rank {rank}" for rank in range(2)
    ]
    steps: dict[int, list[Decimal]] = defaultdict(list)
    for event in events:
        if event["name"].startswith("ProfilerStep#"):
            steps[int(event["name"].partition("#")[2])].append(event["ts"])
    assert steps
    for begins in steps.values():
        assert len(begins) == 2
        # In microseconds: the ranks do not begin a step together, but do not take 5 s to.
        assert max(begins) - min(begins) < 10**6

    file = tmp_path / "ranks.json"
    file.write_text(text)
    again = attribute(kineto.read(file))
    assert again.manifest.ranks == capture.manifest.ranks
    for rank, before in zip(again.manifest.ranks, own, strict=True):
        after = again.rank(rank)
        columns = ["name", "op_id", "parent_id"]
        assert after.ops.select(columns).equals(before.ops.select(columns))


def test_ids_of_several_ranks_do_not_meet(tmp_path: Path) -> None:
    one = recording("h100_block_infer_fp16.json.gz")
    other = Capture(
        msgspec.structs.replace(one.manifest, ranks=(1,)),
        (msgspec.structs.replace(one.processes[0], rank=1),),
        **{
            name: frame.with_columns(pl.lit(1, pl.Int32).alias("rank"))
            for name, frame in one.tables().items()
        },
    )
    text = b"".join(chrome_trace([(each, analyze(each)) for each in (one, other)])).decode()
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    starts = [event["id"] for event in events if event["ph"] == "s"]
    assert len(starts) == len(set(starts)) == 2 * one.kernels.height
    file = tmp_path / "ranks.json"
    file.write_text(text)
    again = attribute(kineto.read(file))
    columns = ["name", "start_ns", "end_ns", "step", "op_id"]
    for rank in (0, 1):
        assert again.rank(rank).kernels.select(columns).equals(one.kernels.select(columns))


def test_an_empty_capture_is_a_valid_trace() -> None:
    assert {event["ph"] for event in events_of(small_capture())} == {"M"}


def test_pieces_stay_small_whatever_the_number_of_events() -> None:
    one = recording("h100_block_infer_fp16.json.gz")
    many = replace(one, launches=pl.concat([one.launches] * 400))
    sizes = [len(piece) for piece in chrome_trace([(many, analyze(one))])]
    assert sum(sizes) > 5 * max(sizes)
