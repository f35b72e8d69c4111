"""Communication and copies: against their link, and only what nothing hides is a loss."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from capture_builder import H100, CaptureBuilder

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.captures import joined
from gpuprof.collectors.joining.ranks import with_distinct_ranks
from gpuprof.collectors.manifest import Calibration, Fingerprint, MeasuredCeiling
from gpuprof.collectors.named_kernels import with_kinds
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.bus_bandwidth import find_collective
from gpuprof.roofline.intervals import covered_ns, merged, union_ns

DATA = Path(__file__).parents[1] / "data" / "kineto"
# NCCL runs all calls of a group in one kernel.
SEND_RECEIVE = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
H2D, D2H = "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)"
MEBIBYTE = 2**20


def on_host(capture: Capture, devices: int, ranks: int) -> Capture:
    """`capture` as one of `ranks` processes on a host of `devices` equal GPUs."""
    (process,) = capture.processes
    fingerprint = Fingerprint(devices=tuple(H100 for _ in range(devices)))
    process = msgspec.structs.replace(process, world_size=ranks, fingerprint=fingerprint)
    return Capture(capture.manifest, (process,), **capture.tables())


def collective(
    build: CaptureBuilder, start: int, end: int, message: int | None = 64 * MEBIBYTE, **more: object
) -> None:
    """One all-reduce of four ranks on a stream of its own."""
    known = {"collective": "allreduce", "message_bytes": message, "group_size": 4, "group": "0"}
    build.kernel(0, start, end, ALL_REDUCE, kind="collective", stream=20, **{**known, **more})


def the_kernel(analysis: Analysis, name: str) -> RooflinePoint:
    (found,) = (point for point in analysis.kernels if point.name == name)
    return found


def test_a_collective_stands_against_its_link(build: CaptureBuilder) -> None:
    collective(build, 0, 1_000_000)
    point = the_kernel(analyze(on_host(build.build(), 4, 4)), ALL_REDUCE)
    # nccl-tests: 64 MiB in 1 ms, times 2 (n - 1) / n; H100 SXM: 900 GB/s both ways.
    bus = 64 * 2**20 * 1.5
    assert point.transfer is not None
    assert point.transfer.bytes_per_s == pytest.approx(64 * 2**20 / 1e-3)
    assert point.transfer.bus_bytes_per_s == pytest.approx(bus / 1e-3)
    assert point.roof_ns == round(bus / 450e9 * 1e9)
    assert point.roof_fraction == pytest.approx(bus / 450e9 / 1e-3)
    assert point.roof == "NVLink (datasheet)"
    assert point.bottleneck.kind == "communication"
    assert point.bottleneck.evidence == (
        "all-reduce of 67.1 MB over 4 ranks: bus bandwidth at least 101 GB/s, 22.4% of NVLink "
        "(datasheet); 100% of its time is exposed"
    )
    # Nothing of it is traffic of this device's memory.
    assert (point.flops, point.total_bytes, point.bytes_per_s) == (None, None, None)


@pytest.mark.parametrize(
    ("devices", "ranks", "reason"),
    [(4, 8, "several hosts"), (1, 4, "several hosts"), (4, 1, "several hosts")],
)
def test_ranks_that_may_be_elsewhere_have_no_link_roof(
    build: CaptureBuilder, devices: int, ranks: int, reason: str
) -> None:
    collective(build, 0, 1_000_000)
    point = the_kernel(analyze(on_host(build.build(), devices, ranks)), ALL_REDUCE)
    assert point.transfer is not None
    assert point.transfer.bus_bytes_per_s == pytest.approx(64 * 2**20 * 1.5 / 1e-3)
    assert (point.roof_ns, point.roof_fraction, point.roof) == (None, None, "")
    assert reason in point.bottleneck.evidence
    assert point.bottleneck.kind == "communication"


@pytest.mark.parametrize(
    ("unknown", "evidence"),
    [
        ({"message_bytes": None}, "all-reduce over 4 ranks: how many bytes it moved"),
        (
            {"group_size": None},
            "all-reduce of 67.1 MB: at least 67.1 GB/s; how many ranks took part",
        ),
        (
            {"collective": None},
            "communication of 67.1 MB over 4 ranks: at least 67.1 GB/s; what of",
        ),
        ({"collective": "all_to_allv"}, "all-to-all of uneven shares of 67.1 MB over 4 ranks"),
    ],
)
def test_what_is_not_known_of_a_collective_is_said(
    build: CaptureBuilder, unknown: dict[str, object], evidence: str
) -> None:
    collective(build, 0, 1_000_000, **unknown)
    point = the_kernel(analyze(on_host(build.build(), 4, 4)), ALL_REDUCE)
    assert point.bottleneck.evidence.startswith(evidence)
    assert point.bottleneck.kind == "communication"
    assert point.bottleneck.gain_ns == 1_000_000
    assert point.transfer is not None
    assert (point.transfer.bus_bytes_per_s, point.transfer.roof_ns) == (None, None)


def test_one_rank_sends_nothing(build: CaptureBuilder) -> None:
    collective(build, 0, 1_000_000, group_size=1)
    (transfer,) = analyze(on_host(build.build(), 4, 4)).transfers
    assert (transfer.bus_bytes_per_s, transfer.roof_ns, transfer.roof_fraction) == (0.0, 0, 0.0)


def test_only_what_nothing_hides_is_lost(build: CaptureBuilder) -> None:
    """Computing for 0..100, copies 80..150, communication 90..200: 30 ns, 50 ns and 20 ns hide."""
    build.step("profiled", 0, 300)
    build.mm(0, 50)
    build.kernel(10, 0, 100, "gemm")
    build.kernel(0, 80, 150, H2D, kind="memcpy", bytes=1000, stream=9)
    collective(build, 90, 200)
    analysis = analyze(on_host(build.build(), 4, 4))
    found = {transfer.kind: transfer.exposed_ns for transfer in analysis.transfers}
    assert found == {"copy": 50, "communication": 50}
    gains = {point.name: point.bottleneck.gain_ns for point in analysis.kernels}
    assert (gains[H2D], gains[ALL_REDUCE]) == (50, 50)


def test_work_of_another_device_hides_nothing(build: CaptureBuilder) -> None:
    build.kernel(10, 0, 100, "gemm", device=1)
    collective(build, 20, 80)
    (transfer,) = analyze(on_host(build.build(), 4, 4)).transfers
    assert transfer.exposed_ns == 60


@pytest.mark.parametrize(
    ("name", "what", "memory", "read", "written"),
    [
        (H2D, "host to device", "pinned", 0, 10**6),
        (D2H, "device to host", "pageable", 10**6, 0),
        ("CopyHostToDevice", "host to device", "", 0, 10**6),
        ("Memcpy DtoH (Device -> Host)", "device to host", "", 10**6, 0),
        ("Memcpy unified HtoD (Managed -> Managed)", "host to device", "", 0, 10**6),
        ("Memcpy HtoA (Pageable -> Array)", "host to device", "pageable", 0, 10**6),
    ],
)
def test_a_copy_stands_against_the_link_to_the_host(
    build: CaptureBuilder, name: str, what: str, memory: str, read: int, written: int
) -> None:
    build.op("aten::copy_", 0, 50, dims="[[250000], [250000]]", types='["float", "float"]')
    build.kernel(10, 1000, 101_000, name, kind="memcpy", bytes=10**6)
    analysis = analyze(build.build())
    (transfer,) = analysis.transfers
    assert (transfer.what, transfer.host_memory, transfer.message_bytes) == (what, memory, 10**6)
    for point in (*analysis.kernels, *analysis.ops):
        # H100 SXM: PCIe Gen5 with 128 GB/s both ways; 1 MB in 100 us.
        assert point.roof_ns == round(10**6 / 64e9 * 1e9)
        assert point.roof == "PCIe (datasheet)"
        assert point.roof_fraction == pytest.approx(10 / 64)
        assert point.bottleneck.kind == "copy"
        assert point.bottleneck.gain_ns == 100_000
        assert ("pinned memory it is faster" in point.bottleneck.evidence) == (memory == "pageable")
        assert (point.bytes_read, point.bytes_written) == (read, written)


def test_a_measured_link_is_asked_by_direction(build: CaptureBuilder) -> None:
    build.kernel(10, 1000, 101_000, H2D, kind="memcpy", bytes=10**6)
    build.kernel(20, 201_000, 301_000, D2H, kind="memcpy", bytes=10**6)
    ceilings = tuple(
        MeasuredCeiling(kind="link", name=level, level=level, rate=rate, spread=0.0, repeats=3)
        for level, rate in (("PCIe h2d", 50e9), ("PCIe d2h", 40e9))
    )
    device = msgspec.structs.replace(H100, name="a device without a row")
    calibration = Calibration(
        device=device, torch="2.13", threads=1, measured_ns=0, ceilings=ceilings
    )
    analysis = analyze(build.build(device, calibration=calibration))
    assert analysis.roof_source == "measured"
    assert the_kernel(analysis, H2D).roof_fraction == pytest.approx(10 / 50)
    assert the_kernel(analysis, D2H).roof_fraction == pytest.approx(10 / 40)


def test_peers_copy_over_the_link_between_devices(build: CaptureBuilder) -> None:
    name = "Memcpy PtoP (Device -> Device)"
    build.kernel(10, 0, 100_000, name, kind="memcpy", bytes=10**7)
    assert the_kernel(analyze(build.build()), name).roof_ns == round(1e7 / 450e9 * 1e9)


def test_a_copy_within_the_device_is_memory_traffic(build: CaptureBuilder) -> None:
    build.kernel(10, 0, 1000, "Memcpy DtoD (Device -> Device)", kind="memcpy", bytes=10**6)
    build.kernel(20, 1000, 1500, "Memset (Device)", kind="memset", bytes=10**6)
    analysis = analyze(build.build())
    assert analysis.transfers == ()
    assert {point.bottleneck.kind for point in analysis.kernels} == {"memory"}


def test_an_operator_is_what_takes_most_of_its_time(build: CaptureBuilder) -> None:
    """aten::nonzero computes, then copies a count to the host."""
    build.mm(0, 50)
    build.kernel(10, 1000, 1090, "gemm")
    build.kernel(20, 1100, 1110, D2H, kind="memcpy", bytes=8)
    build.op("mylib::fetch", 100, 150)
    build.kernel(110, 2000, 2010, "pack")
    build.kernel(120, 2010, 2100, D2H, kind="memcpy", bytes=800)
    ops = {point.name: point for point in analyze(build.build()).ops}
    assert ops["aten::mm"].transfer is None
    assert ops["aten::mm"].roof
    assert ops["mylib::fetch"].bottleneck.kind == "copy"
    # Its kernel has no part in the link's roof.
    assert ops["mylib::fetch"].roof_ns is None


def test_the_part_of_a_copying_operator_that_computes_stays_computing(
    build: CaptureBuilder,
) -> None:
    build.step("profiled", 0, 1000)
    build.op("mylib::fetch", 0, 50)
    build.kernel(10, 0, 100, "pack")
    build.kernel(20, 100, 1000, D2H, kind="memcpy", bytes=800)
    split = analyze(build.build()).split
    assert split is not None
    assert (split.nanoseconds("copy"), split.nanoseconds("unknown")) == (900, 100)
    assert split.idle_ns == 0


def test_the_message_is_the_operator_s_where_its_kernel_has_none(build: CaptureBuilder) -> None:
    types = '["TensorList", "", "", "Scalar", "", "ScalarList", "ScalarList", "Scalar", "Scalar"'
    build.op(
        "record_param_comms",
        *(0, 100),
        dims="[[[1000]], [], [], [], [], [], [], [], [], []]",
        types=types + ', "Scalar"]',
        concrete_inputs='["", "", "", "0", "", "[]", "[]", "0", "1", "4"]',
    )
    build.kernel(50, 1000, 2000, ALL_REDUCE, kind="collective", collective="allreduce")
    (transfer,) = analyze(on_host(build.build(), 4, 4)).transfers
    # 1000 bf16 elements, as the kernel's name says.
    assert (transfer.message_bytes, transfer.group_size) == (2000, 4)
    assert transfer.bus_bytes_per_s == pytest.approx(2000 * 1.5 / 1e-6)


@pytest.mark.parametrize(
    ("caller", "sizes", "expected"),
    [
        # Which of them ran, and both sides, only the operator of c10d tells (torch 1.13).
        ("c10d::alltoall_base_", (300, 300), ("all-to-all", 300)),
        ("c10d::alltoall_base_", (300, 400), ("all-to-all of uneven shares", 400)),
        ("c10d::_allgather_base_", (800, 400), ("all-gather", 800)),
        ("c10d::_reduce_scatter_base_", (100, 400), ("reduce-scatter", 400)),
        ("all_to_all_of_a_library", (300, 400), ("", None)),
    ],
)
def test_a_collective_is_what_its_caller_says_where_the_kernel_says_nothing(
    build: CaptureBuilder, caller: str, sizes: tuple[int, int], expected: tuple[str, int | None]
) -> None:
    output, source = sizes
    parent = build.op(
        caller,
        0,
        100,
        dims=f"[[{output}], [{source}], []]",
        types='["signed char", "signed char", ""]',
    )
    build.op(
        "record_param_comms",
        *(10, 90),
        parent_id=parent,
        dims=f"[[{source}], [], []]",
        types='["signed char", "Scalar", ""]',
    )
    build.kernel(50, 1000, 2000, SEND_RECEIVE, kind="collective")
    (transfer,) = analyze(on_host(build.build(), 4, 4)).transfers
    assert (transfer.what, transfer.message_bytes) == expected
    assert (transfer.bytes_per_s is None) == (expected[1] is None)


def test_a_record_without_shapes_below_an_operator_with_some_is_no_error(
    build: CaptureBuilder,
) -> None:
    types = '["TensorList", "Scalar", ""]'
    parent = build.op("c10d::allreduce_", 0, 100, dims="[[], [], []]", types=types)
    build.op("record_param_comms", 10, 90, parent_id=parent)
    build.kernel(50, 1000, 2000, SEND_RECEIVE, kind="collective")
    analysis = analyze(on_host(build.build(), 4, 4))
    (transfer,) = analysis.transfers
    assert (transfer.what, transfer.message_bytes) == ("all-reduce", None)
    assert not any("raised" in point.bottleneck.evidence for point in analysis.ops)


def test_lists_that_neither_record_holds_have_a_name_and_no_message(build: CaptureBuilder) -> None:
    types = '["TensorList", "Scalar", ""]'
    parent = build.op("c10d::allreduce_", 0, 100, dims="[[], [], []]", types=types)
    build.op("record_param_comms", 10, 90, parent_id=parent, dims="[[], [], []]", types=types)
    build.kernel(50, 1000, 2000, SEND_RECEIVE, kind="collective")
    (transfer,) = analyze(on_host(build.build(), 4, 4)).transfers
    assert (transfer.what, transfer.message_bytes) == ("all-reduce", None)


@pytest.mark.parametrize(
    ("operator", "kernel", "dims", "types", "expected"),
    [
        (
            *("symm_mem::multimem_all_reduce_", "multimem_all_reduce_kernel"),
            *("[[1000], [], []]", '["c10::BFloat16", "", ""]'),
            ("all-reduce", 2000, None),
        ),
        (
            *("symm_mem::one_shot_all_reduce_copy", "one_shot_all_reduce_kernel"),
            *("[[9000], [1000], [], []]", '["float", "float", "", ""]'),
            ("all-reduce", 4000, None),
        ),
        # Of torch 1.12, whose operators stand without record_param_comms.
        (
            *("c10d::_allgather_base_", SEND_RECEIVE),
            *("[[1600], [400], []]", '["float", "float", ""]'),
            ("all-gather", 6400, 4),
        ),
        (
            *("c10d::_reduce_scatter_base_", SEND_RECEIVE),
            *("[[400], [1600], []]", '["float", "float", ""]'),
            ("reduce-scatter", 6400, 4),
        ),
        (
            *("c10d::alltoall_base_", SEND_RECEIVE),
            *("[[300], [400], []]", '["float", "float", ""]'),
            ("all-to-all of uneven shares", 1600, None),
        ),
        # Which of two collectives this kernel does only the operator tells, and of how many ranks.
        (
            *("symm_mem::reduce_scatter_out", "two_shot_all_reduce_kernel"),
            *("[[1000], [], [], [250]]", '["float", "", "Scalar", "float"]'),
            ("reduce-scatter", 4000, 4),
        ),
        (
            *("symm_mem::multimem_all_gather_out", "multimem_all_gather_kernel"),
            *("[[250], [], [1000]]", '["float", "", "float"]'),
            ("all-gather", 4000, 4),
        ),
        (
            *("_C_custom_ar::all_reduce", "cross_device_reduce_1stage"),
            *("[[], [1000], [1000], [], []]", '["Scalar", "float", "float", "Scalar", "Scalar"]'),
            ("all-reduce", 4000, None),
        ),
    ],
)
def test_operators_without_metadata_tell_what_they_can(
    build: CaptureBuilder,
    operator: str,
    kernel: str,
    dims: str,
    types: str,
    expected: tuple[str, int, int | None],
) -> None:
    build.op(operator, 0, 100, dims=dims, types=types)
    build.kernel(50, 1000, 2000, kernel)
    capture = build.build()
    tables = {**capture.tables(), "kernels": with_kinds(capture.kernels)}
    (found,) = analyze(Capture(capture.manifest, capture.processes, **tables)).transfers
    assert (found.what, found.message_bytes, found.group_size) == expected


def test_a_range_of_communication_is_communication(build: CaptureBuilder) -> None:
    build.range("sync", 0, 100)
    build.kernel(
        *(50, 1000, 2000, ALL_REDUCE),
        kind="collective",
        collective="allreduce",
        message_bytes=10**6,
        group_size=4,
    )
    build.kernel(60, 2000, 2010, "k")
    (found,) = analyze(on_host(build.build(), 4, 4)).ranges
    assert (found.bottleneck.kind, found.bottleneck.gain_ns) == ("communication", 1000)


def test_transfers_are_told_apart_by_message_and_sorted_by_what_is_exposed(
    build: CaptureBuilder,
) -> None:
    build.kernel(10, 0, 90, "gemm")
    collective(build, 0, 100, 1000)
    collective(build, 200, 250, 2000)
    collective(build, 300, 350, 2000)
    found = analyze(on_host(build.build(), 4, 4)).transfers
    assert [(one.message_bytes, one.calls, one.exposed_ns) for one in found] == [
        (2000, 2, 100),
        (1000, 1, 10),
    ]


def test_the_step_s_verdict_names_exposed_communication(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 10_000_000)
    build.mm(0, 50)
    build.kernel(10, 0, 2_000_000, "gemm")
    collective(build, 1_000_000, 9_000_000)
    analysis = analyze(on_host(build.build(), 4, 4))
    # Of 2 ms of computing one hides some of it already: another ms is all that can be hidden.
    assert (analysis.bottleneck.kind, analysis.bottleneck.gain_ns) == ("communication", 1_000_000)
    assert analysis.bottleneck.gain_range_ns == (500_000, 7_000_000)


@pytest.mark.parametrize(
    ("case", "algorithm_gb_per_s", "bus_gb_per_s"),
    [("all-reduce", 67.109, 117.441), ("all-gather", 33.554, 29.360), ("send", 33.554, 33.554)],
)
def test_the_case_nccl_factors(case: str, algorithm_gb_per_s: float, bus_gb_per_s: float) -> None:
    (found,) = (
        one
        for one in analyze(kineto.read(DATA / "nccl-factors.json")).transfers
        if one.what == case and one.group_size == 8
    )
    assert found.bytes_per_s == pytest.approx(algorithm_gb_per_s * 1e9, rel=1e-4)
    assert found.bus_bytes_per_s == pytest.approx(bus_gb_per_s * 1e9, rel=1e-4)


def test_exposed_time_is_right_on_any_streams() -> None:
    """Compared with counting each nanosecond by itself."""
    random = np.random.default_rng(5)
    for _ in range(30):
        build = CaptureBuilder()
        busy = {"gemm": set[int](), H2D: set[int](), ALL_REDUCE: set[int]()}
        own: dict[str, list[range]] = {name: [] for name in busy}
        for _ in range(random.integers(1, 12)):
            name = str(random.choice(list(busy)))
            start = int(random.integers(0, 200))
            end = start + int(random.integers(1, 40))
            kind = {"gemm": "kernel", H2D: "memcpy", ALL_REDUCE: "collective"}[name]
            build.kernel(0, start, end, name, kind=kind)
            busy[name] |= set(range(start, end))
            own[name].append(range(start, end))
        hiding = {H2D: busy["gemm"], ALL_REDUCE: busy["gemm"] | busy[H2D]}
        expected = {
            name: sum(at not in hiding[name] for span in own[name] for at in span)
            for name in hiding
            if own[name]
        }
        found = {
            H2D if one.kind == "copy" else ALL_REDUCE: one.exposed_ns
            for one in analyze(build.build()).transfers
        }
        assert found == expected


def test_merged_intervals_cover_what_the_intervals_do() -> None:
    start, end = np.array([5, 0, 3, 20, 20]), np.array([7, 4, 3, 25, 22])
    disjoint = merged(start, end)
    assert [part.tolist() for part in disjoint] == [[0, 5, 20], [4, 7, 25]]
    assert covered_ns(disjoint, np.array([-1, 0, 2, 4, 6, 30])).tolist() == [0, 0, 2, 4, 5, 11]
    assert covered_ns(disjoint, np.array([10**9]))[0] == union_ns(start, end)
    nothing = merged(np.array([], np.int64), np.array([], np.int64))
    assert covered_ns(nothing, np.array([3, 4])).tolist() == [0, 0]


@pytest.mark.parametrize("ranks", [2, 3, 8, 72])
@pytest.mark.parametrize(
    ("name", "sent"),
    [
        # What one rank sends in a ring, step by step, of a message of n shares.
        ("all-reduce", lambda n: 2 * (n - 1)),
        ("all-gather", lambda n: n - 1),
        ("reduce-scatter", lambda n: n - 1),
        ("all-to-all", lambda n: n - 1),
        ("broadcast", lambda n: n),
    ],
)
def test_factors_are_the_shares_that_a_ring_sends(name: str, ranks: int, sent: object) -> None:
    row = find_collective(name)
    assert row is not None
    assert callable(sent)
    factor = row.bus_factor(ranks)
    assert factor is not None
    assert math.isclose(factor * ranks, sent(ranks))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("_allgather_base", "all-gather"),
        ("all_gather_into_tensor_coalesced", "all-gather"),
        ("_reduce_scatter_base", "reduce-scatter"),
        ("allreduce_coalesced", "all-reduce"),
        ("ALLREDUCE", "all-reduce"),
        ("recv", "receive"),
        ("all_to_allv", "all-to-all of uneven shares"),
        ("custom_thing", None),
    ],
)
def test_torch_s_spellings_are_known(spelling: str, name: str | None) -> None:
    row = find_collective(spelling)
    assert (row and row.name) == name


def read_straggler() -> Capture:
    return joined([kineto.read(DATA / f"nccl-straggler-rank{rank}.json") for rank in (0, 1)])


@pytest.mark.parametrize(("rank", "waiting_ms"), [(0, 8), (1, 0)])
def test_two_ranks_tell_the_transfer_from_the_waiting(rank: int, waiting_ms: int) -> None:
    """The case nccl-straggler: 256 MiB in 10 and 2 ms, of which the first 8 are waiting."""
    (found,) = analyze(read_straggler(), rank=rank).transfers
    assert (found.waiting_ns, found.exposed_waiting_ns) == (waiting_ms * 10**6,) * 2
    assert found.bytes_per_s == pytest.approx(134.2e9, rel=1e-3)
    assert found.bus_bytes_per_s == pytest.approx(134.2e9, rel=1e-3)


def test_the_rank_that_waits_is_told_from_the_one_that_is_waited_for() -> None:
    """Rank 1 computes for 400 us and rank 0 for 100, then both reduce for 100 us."""
    captures = []
    for begin in (100_000, 400_000):
        build = CaptureBuilder()
        build.step("profiled", 0, 500_000)
        build.mm(0, 50)
        build.kernel(10, 0, begin, "gemm")
        known = {"collective": "allreduce", "message_bytes": 10**6, "group": "0", "group_size": 2}
        build.kernel(20, begin, 500_000, ALL_REDUCE, kind="collective", stream=20, **known)
        captures.append(build.build(world_size=2))
    capture = joined(with_distinct_ranks(captures)[0])
    waits, waited_for = (analyze(capture, rank=rank) for rank in (0, 1))
    assert waits.split is not None
    assert waits.split.nanoseconds("other rank") == 300_000
    assert waits.split.nanoseconds("communication") == 100_000
    assert (waits.bottleneck.kind, waits.bottleneck.gain_ns) == ("other rank", 300_000)
    kernel = the_kernel(waits, ALL_REDUCE)
    assert (kernel.bottleneck.kind, kernel.bottleneck.gain_ns) == ("other rank", 300_000)
    assert "75% of its time waits for ranks" in kernel.bottleneck.evidence
    assert waited_for.split is not None
    assert waited_for.split.nanoseconds("other rank") == 0
    assert waited_for.split.nanoseconds("communication") == 100_000
    assert the_kernel(waited_for, ALL_REDUCE).bottleneck.kind == "communication"


def test_one_rank_alone_does_not_tell_waiting() -> None:
    (found,) = analyze(kineto.read(DATA / "nccl-straggler-rank0.json")).transfers
    assert (found.waiting_ns, found.exposed_waiting_ns) == (None, None)
    assert found.bus_bytes_per_s == pytest.approx(26.8e9, rel=2e-3)


def shared(name: str) -> Capture:
    path = Path(__file__).parents[3] / "shared" / "data" / "recordings" / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip("the recordings are not beside this repository")
    return kineto.read(path)


def test_four_ranks_of_ddp() -> None:
    """A recording whose kernels have no metadata: their operators do."""
    analysis = analyze(shared("h200x4_ddp_rank0"))
    assert {(one.what, one.group_size) for one in analysis.transfers} == {("all-reduce", 4)}
    assert sum(one.calls for one in analysis.transfers) == 33
    # Four blocks of d = 2048, ff = 5504: 4 d^2 + 3 d ff weights, two norms with weight and bias.
    # Each step reduces the bf16 gradient of each parameter once.
    parameters = 4 * (4 * 2048**2 + 3 * 2048 * 5504 + 4 * 2048)
    total = sum(one.total_bytes or 0 for one in analysis.transfers)
    assert total == 3 * 2 * parameters
    assert analysis.bottleneck.kind == "communication"
    unhidden = sum(one.exposed_ns for one in analysis.transfers) / 3
    assert analysis.exposed is not None
    assert unhidden == pytest.approx(analysis.exposed.communication_ns, rel=0.01)


def test_four_ranks_together_tell_the_link_s_rate() -> None:
    """Rank 3 of this recording came last to all: its times are those of the transfers."""
    capture = joined([shared(f"h200x4_ddp_rank{rank}") for rank in range(4)])
    found = {rank: analyze(capture, rank=rank).transfers for rank in (0, 3)}
    assert all(one.waiting_ns == 0 for one in found[3])
    # An all-reduce benchmark on such a host reached 354 GB/s at 1 GiB, and 36 GB/s at 1 MiB.
    for one in found[0]:
        assert one.bus_bytes_per_s is not None
        assert 150e9 < one.bus_bytes_per_s < 354e9
        assert one.waiting_ns is not None
        assert one.waiting_ns > 0.7 * one.device_ns
        assert one.exposed_waiting_ns is not None
        assert one.exposed_waiting_ns <= min(one.waiting_ns, one.exposed_ns)
