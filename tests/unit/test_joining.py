from pathlib import Path

import msgspec
import polars as pl
import pytest

from gpuprof.collectors import ncu, nsys, schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.captures import join, join_ranks
from gpuprof.collectors.joining.launch_keys import KEY, launch_keys
from gpuprof.collectors.joining.launch_matching import base_name
from gpuprof.collectors.manifest import Device, Fingerprint, Manifest, ProcessInfo

SHARED = Path(__file__).resolve().parents[3] / "shared"
DATA = Path(__file__).resolve().parents[1] / "data"

# Name, grid of a launch; a launch's index times ten is its start.
Launches = list[tuple[str, int | None]]


def shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{'/'.join(parts)} is absent from ../shared")
    return path


def capture_of(
    launches: Launches, source: str, rank: int = 0, first_value: float | None = None
) -> Capture:
    """Kernels in launch order; with `first_value` also one counter each: that, that + 1, ..."""
    kernels = schema.conform(
        "kernels",
        pl.DataFrame(
            {
                "rank": [rank] * len(launches),
                "start_ns": [10 * number for number in range(len(launches))],
                "end_ns": [10 * number + 5 for number in range(len(launches))],
                "name": [name for name, _ in launches],
                "kind": ["kernel"] * len(launches),
                "process": [1] * len(launches),
                "correlation": list(range(1, len(launches) + 1)),
                "grid_x": [grid for _, grid in launches],
                "grid_y": [None if grid is None else 1 for _, grid in launches],
                "grid_z": [None if grid is None else 1 for _, grid in launches],
                "block_x": [32] * len(launches),
                "block_y": [1] * len(launches),
                "block_z": [1] * len(launches),
            }
        ),
    )
    counters = schema.empty("counters")
    if first_value is not None:
        keys = launch_keys(kernels, schema.empty("launches"))
        counters = schema.conform(
            "counters",
            keys.with_columns(
                metric=pl.lit("m"), value=pl.col("row") + first_value, unit=pl.lit("")
            ),
        )
    manifest = Manifest(tool_version="0", source=source, title=source, created_ns=0, ranks=(rank,))
    return Capture(manifest, (ProcessInfo(rank=rank),), kernels=kernels, counters=counters)


def trace(*launches: tuple[str, int | None], rank: int = 0) -> Capture:
    return capture_of(list(launches), "nsys", rank)


def report(*launches: tuple[str, int | None], rank: int = 0, first_value: float = 0) -> Capture:
    return capture_of(list(launches), "ncu", rank, first_value)


def by_start(capture: Capture) -> dict[int, float]:
    """The counter of each kernel that has one, by the kernel's start."""
    keys = launch_keys(capture.kernels, capture.launches)
    starts = capture.kernels.with_row_index("row").select("row", "start_ns")
    found = keys.join(starts, on="row").join(capture.counters, on=list(KEY), nulls_equal=True)
    return dict(found.select("start_ns", "value").iter_rows())


def warnings(capture: Capture) -> str:
    return "; ".join(capture.processes[0].warnings)


def test_counters_go_to_the_launches_of_the_same_name_grid_and_order() -> None:
    joined = join(
        [
            trace(("a", 1), ("b", 1), ("a", 1), ("a", 2)),
            report(("a", 1), ("b", 1), ("a", 1), ("a", 2)),
        ]
    )
    assert by_start(joined) == {0: 0.0, 10: 1.0, 20: 2.0, 30: 3.0}
    assert joined.manifest.source == "nsys"
    assert joined.kernels.height == 4
    assert warnings(joined) == ""


def test_a_window_of_a_run_is_found_by_its_sequence() -> None:
    # Of three equal-looking launches of a in each round, c tells which round it is.
    rounds = [("a", 1), ("a", 1), ("b", 1), ("a", 1), ("c", 1)]
    joined = join([trace(*rounds, *rounds), report(("b", 1), ("a", 1), ("c", 1), ("a", 1))])
    assert by_start(joined) == {20: 0.0, 30: 1.0, 40: 2.0, 50: 3.0}


def test_a_report_of_some_names_skips_the_others() -> None:
    joined = join(
        [trace(("a", 1), ("x", 1), ("b", 1), ("x", 1), ("a", 1)), report(("b", 1), ("a", 1))]
    )
    assert by_start(joined) == {20: 0.0, 40: 1.0}
    assert warnings(joined) == ""


def test_without_a_common_sequence_launches_of_a_kind_are_taken_in_order_and_this_is_said() -> None:
    joined = join([trace(("a", 1), ("b", 1), ("b", 1)), report(("b", 1), ("a", 1))])
    assert by_start(joined) == {0: 1.0, 10: 0.0}
    assert dict(joined.counters.select("kernel", "certain").iter_rows()) == {"a": True, "b": False}
    assert "counters of 1 launches were given to the first launches" in warnings(joined)


def test_a_run_of_launches_is_found_where_the_whole_report_is_not() -> None:
    # The report begins with launches that came before the trace, and lacks one in its middle.
    joined = join(
        [
            trace(("a", 1), ("c", 1), ("a", 1), ("b", 1), ("x", 1), ("a", 1), ("c", 1), ("b", 1)),
            report(
                *(("b", 1), ("gone", 1), ("a", 1), ("b", 1), ("x", 1), ("c", 1), ("b", 1)),
            ),
        ]
    )
    # a b x stand together once; the last c and b are the first that are left.
    assert by_start(joined) == {20: 2.0, 30: 3.0, 40: 4.0, 10: 5.0, 70: 0.0}
    certain = joined.counters.sort("value").select("value", "certain").rows()
    assert certain == [(0.0, False), (2.0, True), (3.0, True), (4.0, True), (5.0, False)]


def test_profiled_launches_that_the_trace_lacks_are_counted_and_left_out() -> None:
    joined = join([trace(("a", 1)), report(("a", 1), ("a", 1), ("gone", 1), ("a", 2))])
    assert by_start(joined) == {0: 0.0}
    assert joined.counters.height == 1
    assert "3 of 4 profiled launches are not in the trace" in warnings(joined)


def test_spellings_of_two_tools_are_one_kernel() -> None:
    ours = "void at::native::(anonymous namespace)::reduce<512, Op<float>>(T3)"
    theirs = "void at::<unnamed>::reduce<(int)512, Op<float>>(float)"
    joined = join([trace((ours, 4), (ours, 8)), report((theirs, 8))])
    assert by_start(joined) == {10: 0.0}
    assert joined.counters["kernel"].to_list() == [ours]


def test_an_exact_name_wins_over_one_with_the_same_base() -> None:
    joined = join([trace(("f<1>", 1), ("f<2>", 1)), report(("f<2>", 1))])
    assert by_start(joined) == {10: 0.0}


def test_a_report_without_grids_matches_by_name() -> None:
    joined = join([trace(("a", 4), ("b", 8)), report(("b", None))])
    assert by_start(joined) == {10: 0.0}


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("gemm", "gemm"),
        ("void gemm<float>(float *)", "gemm"),
        ("void at::native::(anonymous namespace)::reduce<512, Op<a::b>>(T3)", "reduce"),
        ("void at::<unnamed>::f<(int)4, (bool)0>(int, [lambda() (instance 1)])", "f"),
        ("copy_blocked[v1,cw51](Array<long long, 1, C>, long long)", "copy_blocked"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("cutlass::Kernel2<x>::run<y>(T1::Params)", "run"),
        ("a>b<c)(", "a>b"),
        ("", ""),
        ("<>", "<>"),
    ],
)
def test_base_names(name: str, base: str) -> None:
    assert base_name(name) == base


def test_the_launch_order_is_that_of_the_calls_and_not_of_the_streams() -> None:
    late_first = trace(("a", 1), ("a", 1))
    calls = schema.conform(
        "launches",
        pl.DataFrame(
            {
                "rank": [0, 0],
                "process": [1, 1],
                "correlation": [1, 2],
                "start_ns": [-5, -9],
            }
        ),
    )
    keys = launch_keys(late_first.kernels, calls)
    assert keys.select("row", "launch_index").rows() == [(1, 0), (0, 1)]


def test_two_reports_of_one_run_become_one_without_a_trace() -> None:
    other = report(("a", 1), ("b", 1), first_value=50)
    other = Capture(
        other.manifest,
        other.processes,
        kernels=other.kernels,
        counters=other.counters.with_columns(pl.lit("second").alias("metric")),
    )
    joined = join([report(("a", 1), ("b", 1)), other, report(("a", 1), first_value=99)])
    assert joined.kernels.height == 2
    # The first value of a metric stays.
    assert sorted(joined.counters.select("metric", "value").rows()) == [
        ("m", 0.0),
        ("m", 1.0),
        ("second", 50.0),
        ("second", 51.0),
    ]


def test_a_report_names_the_device_where_the_trace_does_not() -> None:
    device = Device(index=0, kind="cuda", name="NVIDIA H200")
    profiled = report(("a", 1))
    (process,) = profiled.processes
    named = msgspec.structs.replace(process, fingerprint=Fingerprint(devices=(device,)))
    joined = join([trace(("a", 1)), Capture(profiled.manifest, (named,), **profiled.tables())])
    assert joined.processes[0].fingerprint.devices == (device,)


def test_counters_stay_with_their_rank() -> None:
    profiled = join_ranks([report(("a", 1)), report(("a", 1), rank=1, first_value=7)])
    joined = join([trace(("a", 1), rank=1), trace(("a", 1), rank=0), profiled])
    assert joined.manifest.ranks == (0, 1)
    assert joined.counters.sort("rank").select("rank", "value").rows() == [(0, 0.0), (1, 7.0)]


def test_a_single_report_belongs_to_the_only_rank() -> None:
    joined = join([trace(("a", 1), rank=3), report(("a", 1))])
    assert joined.counters.select("rank", "value").rows() == [(3, 0.0)]


def test_ranks_that_files_name_are_kept() -> None:
    joined = join_ranks([trace(("a", 1), rank=5), trace(("b", 1), rank=2)])
    assert [(process.rank, process.world_size) for process in joined.processes] == [(2, 2), (5, 2)]
    assert dict(joined.kernels.select("rank", "name").iter_rows()) == {5: "a", 2: "b"}
    assert warnings(joined) == ""


def test_of_files_that_state_one_rank_the_first_keeps_it_and_the_others_are_named() -> None:
    joined = join_ranks([trace(("a", 1)), trace(("b", 1)), trace(("c", 1), rank=9)])
    assert joined.manifest.ranks == (0, 9, 10)
    assert dict(joined.kernels.select("rank", "name").iter_rows()) == {0: "a", 10: "b", 9: "c"}
    assert "numbered in the order of the files" in warnings(joined)
    assert "is rank 10" in warnings(joined)


def test_different_clocks_are_pointed_out() -> None:
    first, second = trace(("a", 1)), trace(("b", 1), rank=1)
    manifest = msgspec.structs.replace(second.manifest, clock="session start")
    joined = join_ranks([first, Capture(manifest, second.processes, **second.tables())])
    assert "different clocks" in warnings(joined)


def test_one_capture_is_itself_and_none_is_an_error() -> None:
    only = trace(("a", 1))
    assert join([only]) is only
    with pytest.raises(ValueError, match="no captures"):
        join([])


def test_the_targeted_recording_joins_its_nsys_recording() -> None:
    pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    profiled = ncu.read(shared("data", "recordings", "h200_block_targeted.ncu-rep.gz"))
    recorded = nsys.read(DATA / "nsys" / "h200_block.sqlite.gz")
    joined = join([recorded, profiled])
    assert joined.counters.height == profiled.counters.height
    keys = launch_keys(joined.kernels, joined.launches)
    spans = joined.kernels.with_row_index("row").select(
        "row", (pl.col("end_ns") - pl.col("start_ns")).alias("traced"), "start_ns"
    )
    durations = (
        joined.counters.filter(pl.col("metric") == "gpu__time_duration.sum")
        .join(keys, on=list(KEY))
        .join(spans, on="row")
        .sort("start_ns")
    )
    assert durations.height == 24
    # In the order they were profiled, and of nearly the same length: these are the same launches.
    assert durations["value"].to_list() == [
        float(end - start)
        for start, end in profiled.kernels.select("start_ns", "end_ns").iter_rows()
    ]
    long = durations.filter(pl.col("traced") > 10_000)
    assert long.height == 23
    assert ((long["value"] / long["traced"] - 1).abs() < 0.09).all()


def on_device(capture: Capture, *devices: Device) -> Capture:
    (process,) = capture.processes
    fingerprint = Fingerprint(devices=devices)
    return capture.with_processes((msgspec.structs.replace(process, fingerprint=fingerprint),))


def test_the_l2_of_the_traces_device_is_taken_from_a_report_of_the_same_device() -> None:
    h100 = Device(index=0, kind="cuda", name="H100")
    known = msgspec.structs.replace(h100, l2_cache_bytes=50)
    joined = join([on_device(trace(("a", 1)), h100), on_device(report(("a", 1)), known)])
    assert joined.processes[0].fingerprint.devices == (known,)
    assert warnings(joined) == ""


def test_counters_of_another_device_than_the_traces_are_told() -> None:
    ours = Device(index=0, kind="cuda", name="H100")
    theirs = Device(index=0, kind="cuda", name="H200", l2_cache_bytes=60)
    joined = join([on_device(trace(("a", 1)), ours), on_device(report(("a", 1)), theirs)])
    assert joined.processes[0].fingerprint.devices == (ours,)
    assert "the counters were measured on H200, the trace on H100" in warnings(joined)
