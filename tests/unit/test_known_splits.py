"""Captures written by hand whose step and split are known, from one GPU to four ranks.

A product of 4096 x 32 x 4096 in bf16 needs 35,000 bytes / us of DRAM: its roof is the memory's.
"""

from collections.abc import Mapping

import polars as pl
import pytest
from capture_builder import H100, CaptureBuilder
from msgspec.structs import replace

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

US = 1000
# Bytes of a product over H100's 3.35 TB/s, in ns.
ROOF_NS = round(2 * (4096 * 32 + 32 * 4096 + 4096 * 4096) / 3350)
STEPS = 3
STEP = 1000 * US


def product(build: CaptureBuilder, at: int, length: int, *, device: int = 0, **more: int) -> None:
    """A product that runs `length` ns from `at` on, launched 5 us before."""
    build.mm(at - 6 * US, at - 4 * US, 4096, 32, 4096)
    build.kernel(at - 5 * US, at, at + length, "gemm", device=device, **more)


def all_reduce(build: CaptureBuilder, at: int, length: int, *, device: int = 0) -> None:
    launched = at - 5 * US
    build.kernel(
        launched, at, at + length, "ncclKernel", kind="collective", stream=20, device=device
    )


def copy(build: CaptureBuilder, at: int, length: int, name: str) -> None:
    build.kernel(at - 5 * US, at, at + length, name, kind="memcpy", stream=30, bytes=1000)


def steps(build: CaptureBuilder) -> list[int]:
    """Marks of steps that end when their device work does; returns their starts."""
    starts = [STEP * number for number in range(STEPS)]
    for start in starts:
        build.step("profiled", start, start + STEP)
    return starts


def parts_of(analysis: Analysis) -> Mapping[str, int]:
    split = analysis.split
    assert split is not None
    found = {part.kind: part.nanoseconds for part in split.parts if part.nanoseconds}
    assert sum(found.values()) == split.step_ns
    assert split.clipped_ns == 0
    return found


def about(**parts: int) -> object:
    return pytest.approx(parts, abs=3)


def test_one_gpu() -> None:
    build = CaptureBuilder()
    for start in steps(build):
        product(build, start + 100 * US, 300 * US)
        product(build, start + 500 * US, 200 * US)
    # Nothing is known of the gap without the profiler, but 300 us are busy and below the roof.
    analysis = analyze(build.build())
    assert parts_of(analysis) == about(
        roof=2 * ROOF_NS, memory=500 * US - 2 * ROOF_NS, launch=500 * US
    )
    assert analysis.bottleneck.kind == "memory"


def test_overlapped_and_exposed_communication() -> None:
    build = CaptureBuilder()
    for start in steps(build):
        product(build, start + 100 * US, 300 * US)
        # 200 us under the product, 250 us alone.
        all_reduce(build, start + 200 * US, 450 * US)
    analysis = analyze(build.build())
    assert parts_of(analysis) == about(
        roof=ROOF_NS, memory=300 * US - ROOF_NS, communication=250 * US, launch=450 * US
    )
    assert analysis.bottleneck.kind == "memory"


def test_copies_hidden_under_products_and_exposed_ones() -> None:
    build = CaptureBuilder()
    for start in steps(build):
        product(build, start + 100 * US, 600 * US)
        copy(build, start + 150 * US, 400 * US, "Memcpy HtoD (Pinned -> Device)")
        copy(build, start + 680 * US, 75 * US, "Memcpy DtoH (Device -> Pageable)")
    analysis = analyze(build.build())
    assert parts_of(analysis) == about(
        roof=ROOF_NS, memory=600 * US - ROOF_NS, copy=55 * US, launch=345 * US
    )
    assert analysis.exposed is not None
    exposed = [(c.direction, c.host_memory, c.exposed_ns) for c in analysis.exposed.copies]
    assert exposed == [
        ("device to host", "pageable", 55 * US),
        ("host to device", "pinned", 0),
    ]


def test_a_graph() -> None:
    build = CaptureBuilder()
    for start in steps(build):
        for number in range(5):
            build.kernel(start + 10 * US, start + (50 + 100 * number) * US, 0, "node")
        # One launch for all of a replay's kernels.
        del build.rows["launches"][-4:]
        first = build.rows["kernels"][-5]["correlation"]
        for number, row in enumerate(build.rows["kernels"][-5:]):
            row["correlation"] = first
            row["end_ns"] = start + (150 + 100 * number) * US
    analysis = analyze(build.build())
    # A launch reaches the device within 5 us, and this one's first kernel begins 40 us after it.
    assert parts_of(analysis) == about(unknown=500 * US, launch=465 * US, queued=35 * US)
    assert analysis.steps.launches_per_step == 1


def test_four_gpus_of_one_process_that_take_turns() -> None:
    build = CaptureBuilder()
    for start in steps(build):
        for device in range(4):
            # The last one works 20 us longer than the others: the step waits for it.
            at = start + (10 + 240 * device) * US
            product(build, at, (240 if device < 3 else 260) * US, device=device)
    capture = build.build(None)
    devices = tuple(replace(H100, index=index) for index in range(4))
    info = replace(capture.processes[0], fingerprint=Fingerprint(devices=devices))
    analysis = analyze(capture.with_processes((info,)))
    assert analysis.exposed is not None
    assert analysis.exposed.device == 3
    assert parts_of(analysis) == about(
        **{
            "roof": ROOF_NS,
            "memory": 260 * US - ROOF_NS,
            "other device": 720 * US,
            "launch": 20 * US,
        }
    )
    assert analysis.bottleneck.kind == "other device"
    busy = [(use.device, use.busy_ns) for use in analysis.devices]
    assert busy == [(0, 240 * US), (1, 240 * US), (2, 240 * US), (3, 260 * US)]
    use = analysis.utilization
    assert use is not None
    assert use.devices == 4
    flops = 4 * 2 * 4096 * 32 * 4096
    assert use.mfu == pytest.approx(flops / 1e-3 / (4 * 989.4e12))


def rank_of(number: int, build: CaptureBuilder) -> Capture:
    capture = build.build()
    info = replace(capture.processes[0], rank=number, world_size=4)
    manifest = replace(capture.manifest, ranks=(number,))
    rank = pl.lit(number, pl.Int32).alias("rank")
    tables = {name: frame.with_columns(rank) for name, frame in capture.tables().items()}
    return Capture(manifest, (info,), **tables)


def test_four_ranks_with_hosts_ahead_of_their_devices_by_different_times() -> None:
    """Each device is busy without a gap; the last rank computes longer and waits for nobody."""
    ranks = []
    for number in range(4):
        build = CaptureBuilder()
        for step in range(4):
            # A host that is ahead has marked its steps in 300 to 600 us each, long before.
            mark = 300 * US + 100 * US * number
            build.step("profiled", mark * step, mark * (step + 1))
            queued = mark * step + 10 * US
            at = 2000 * US + STEP * step
            length = 600 * US if number < 3 else 900 * US
            build.mm(queued, queued + 2 * US, 4096, 32, 4096)
            build.kernel(queued + US, at, at + length, "gemm")
            build.kernel(queued + 3 * US, at + length, at + STEP, "nccl", kind="collective")
        ranks.append(rank_of(number, build))
    capture = join(ranks)
    for number in range(4):
        analysis = analyze(capture, rank=number)
        assert analysis.steps.definition == "device period"
        assert analysis.steps.length_ns == STEP
        computing = 600 * US if number < 3 else 900 * US
        assert parts_of(analysis) == about(
            roof=ROOF_NS, memory=computing - ROOF_NS, communication=STEP - computing
        )
