"""A transfer takes a while however small it is: small ones are not compared with a bandwidth."""

import msgspec
import polars as pl
import pytest
from capture_builder import H100, CaptureBuilder
from rich.console import Console

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Calibration, CopyTimes, Fingerprint, MeasuredCeiling
from gpuprof.reference_kernels.calibration.copies import (
    SIZES,
    copy_latencies,
    latency_and_rate,
    pageable_ceilings,
    times_of_copies,
)
from gpuprof.reference_kernels.calibration.measure import with_latencies
from gpuprof.reports.machine.calibration import ceiling_table, copies_table
from gpuprof.roofline.analysis import Transfer
from gpuprof.roofline.analyze import analyze

PINNED, PAGEABLE = "Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pageable -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def measured(device_name: str = H100.name) -> Calibration:
    """Pinned copies at 50 GB/s after 2.5 us, pageable ones at 10 GB/s after 6 us."""
    link = MeasuredCeiling(
        kind="link", name="PCIe h2d", rate=50e9, spread=0.0, repeats=7, level="PCIe h2d"
    )
    copies = tuple(
        CopyTimes(
            direction="host to device",
            host_memory=memory,
            times=tuple((size, latency_ns + size / rate * 1e9) for size in SIZES),
            repeats=9,
            spread=0.01,
        )
        for memory, latency_ns, rate in (("pinned", 2500.0, 50e9), ("pageable", 6000.0, 10e9))
    )
    return Calibration(
        device=msgspec.structs.replace(H100, name=device_name),
        torch="2.11.0",
        threads=None,
        measured_ns=1,
        ceilings=(*with_latencies([link], copy_latencies(copies)), *pageable_ceilings(copies)),
        copies=copies,
    )


def the_transfer(
    build: CaptureBuilder, *, calibration: Calibration | None = None, devices: int = 4
) -> Transfer:
    capture = build.build()
    (process,) = capture.processes
    device = H100 if calibration is None else calibration.device
    process = msgspec.structs.replace(
        process,
        world_size=devices,
        fingerprint=Fingerprint(devices=(device,) * devices),
        calibration=calibration,
    )
    (found,) = analyze(Capture(capture.manifest, (process,), **capture.tables())).transfers
    return found


def copy(build: CaptureBuilder, size: int, took_ns: int, name: str = PINNED) -> None:
    build.kernel(0, 0, took_ns, name, kind="memcpy", bytes=size)


@pytest.mark.parametrize("size", [1, 4096, 57_000])
def test_a_copy_too_small_for_its_link_has_no_share_of_it(build: CaptureBuilder, size: int) -> None:
    copy(build, size, 2300)
    found = the_transfer(build)
    # 57,600 bytes take as long as a copy of 4 KiB of an H200, at 64 GB/s.
    assert (found.latency_ns, found.roof_ns, found.roof_fraction) == (900, None, None)
    assert (
        "too small for the bandwidth of its link: 0.9 µs is the least that a copy takes on an"
        in (found.no_roof)
    )
    # The bandwidth itself is as it was.
    assert found.bytes_per_s == pytest.approx(size / 2300e-9)


def test_the_verdict_on_a_small_copy_tells_its_time_and_no_rate(build: CaptureBuilder) -> None:
    copy(build, 4096, 2300)
    (point,) = analyze(build.build()).kernels
    assert point.bottleneck.evidence.startswith(
        "host to device (pinned) of 4.1 kB: 2.3 µs a call, too small for the bandwidth of its link"
    )
    assert "%" not in point.bottleneck.evidence.partition("; 100%")[0]


def test_a_copy_that_its_bytes_make_long_has_its_share(build: CaptureBuilder) -> None:
    # 64 GB/s one way: 1 MB takes 15.6 us.
    copy(build, 1_000_000, 20_000)
    found = the_transfer(build)
    assert found.latency_ns is None
    assert found.roof_fraction == pytest.approx(1e6 / 64e9 / 20e-6)


def test_on_a_datasheet_s_roof_the_measured_time_tells_what_is_small(build: CaptureBuilder) -> None:
    # 140 kB take 2.19 us at the datasheet's 64 GB/s: more than some take, less than one here.
    copy(build, 140_000, 6000)
    assert the_transfer(build).latency_ns is None
    found = the_transfer(build, calibration=measured())
    assert found.latency_ns == 2500
    assert "2.5 µs is the least that a copy takes here as measured" in found.no_roof


@pytest.mark.parametrize("size", [4096, 10**6, 10**8])
def test_a_measured_roof_is_the_latency_and_the_bytes(build: CaptureBuilder, size: int) -> None:
    copy(build, size, 5_000_000)
    # No datasheet knows this device.
    found = the_transfer(build, calibration=measured("Some Future GPU"))
    assert found.roof == "PCIe h2d (measured)"
    assert found.roof_ns == pytest.approx(2500 + size / 50, abs=1)
    assert (found.latency_ns, found.no_roof) == (None, "")


def test_pageable_copies_are_told_what_pinned_ones_take_here(build: CaptureBuilder) -> None:
    copy(build, 10**6, 106_000, PAGEABLE)
    found = the_transfer(build, calibration=measured())
    assert found.pinned_ns == 22_500
    capture = build.build()
    (process,) = capture.processes
    process = msgspec.structs.replace(process, calibration=measured())
    (point,) = analyze(Capture(capture.manifest, (process,), **capture.tables())).kernels
    assert "from pinned memory one takes about 22.5 µs here, not 106 µs" in (
        point.bottleneck.evidence
    )


def test_a_pageable_copy_as_fast_as_a_pinned_one_is_told_of_the_host_alone(
    build: CaptureBuilder,
) -> None:
    copy(build, 10**6, 23_000, PAGEABLE)
    capture = build.build()
    (process,) = capture.processes
    process = msgspec.structs.replace(process, calibration=measured())
    (point,) = analyze(Capture(capture.manifest, (process,), **capture.tables())).kernels
    assert "with pinned memory the host need not wait" in point.bottleneck.evidence
    assert "not 23 µs" not in point.bottleneck.evidence


@pytest.mark.parametrize(
    ("what", "ranks", "least_ns"),
    [
        # 3.6 us, and 0.47 for each hop of a ring.
        ("allreduce", 4, 3600 + 6 * 470),
        ("allreduce", 8, 3600 + 14 * 470),
        ("_allgather_base", 4, 3600 + 3 * 470),
        ("broadcast", 4, 3600 + 470),
    ],
)
def test_a_small_collective_is_bound_by_its_hops(
    build: CaptureBuilder, what: str, ranks: int, least_ns: int
) -> None:
    build.kernel(
        *(0, 0, 20_000, ALL_REDUCE),
        kind="collective",
        collective=what,
        message_bytes=16_384,
        group_size=ranks,
    )
    found = the_transfer(build, devices=8)
    assert (found.latency_ns, found.roof_fraction) == (least_ns, None)
    assert f"NCCL takes over {ranks} ranks" in found.no_roof


def test_latency_and_rate_are_those_of_a_straight_line() -> None:
    latency_ns, rate = latency_and_rate([(size, 1800.0 + size / 40) for size in SIZES])
    assert (latency_ns, rate) == (pytest.approx(1800), pytest.approx(40e9))
    # Nothing takes less than no time.
    assert latency_and_rate([(4096, 10.0), (2**28, 2.0**28)])[0] == 0.0


def rows(memory: str, sizes: tuple[int, ...]) -> list[tuple[str, str, int, int, int]]:
    return [
        ("memcpy", f"Memcpy {way}", size, 0, took)
        for size in sizes
        for way in (f"HtoD ({memory} -> Device)", f"DtoH (Device -> {memory})")
        for took in (size + 10, size + 30, size + 20)
    ]


def test_the_times_of_copies_are_medians_by_kind_and_size() -> None:
    data = rows("Pinned", SIZES) + rows("Pageable", SIZES[1:]) + [("kernel", "k", 0, 0, 9)]
    columns = ["kind", "name", "bytes", "start_ns", "end_ns"]
    found = times_of_copies(pl.DataFrame(data, schema=columns, orient="row"))
    # Of pageable memory the smallest size is missing.
    assert [(each.direction, each.host_memory) for each in found] == [
        ("host to device", "pinned"),
        ("device to host", "pinned"),
    ]
    assert all(each.times == tuple((size, size + 20) for size in SIZES) for each in found)
    assert {each.repeats for each in found} == {3}
    of_rocm = [("memcpy", "CopyHostToDevice", size, 0, size) for size in SIZES]
    assert times_of_copies(pl.DataFrame(of_rocm, schema=columns, orient="row")) == ()


def test_calibrate_shows_copies_by_size_and_old_calibrations_have_none() -> None:
    calibration = measured()
    console = Console(width=100)
    with console.capture() as capture:
        console.print(ceiling_table(calibration))
        console.print(copies_table(calibration))
    text = capture.get()
    assert "PCIe h2d pageable" in text
    assert "256 MiB" in text
    assert "4 KiB" in text
    assert "2.58 µs" in text
    old = msgspec.json.decode(
        msgspec.json.encode(msgspec.structs.replace(calibration, copies=())), type=Calibration
    )
    assert copies_table(old) is None
