"""reference_kernels.calibration.memory_latency: chains of loads, and Little's law."""

import torch

from gpuprof.collectors.manifest import Calibration, Device, MeasuredCeiling
from gpuprof.reference_kernels.calibration.measure import with_latencies
from gpuprof.reference_kernels.calibration.memory_latency import make_chain
from gpuprof.reports.machine.calibration import bytes_in_flight, remarks


def ceiling(level: str | None, rate: float, kind: str = "memory") -> MeasuredCeiling:
    return MeasuredCeiling(
        kind=kind,  # type: ignore[arg-type]
        name=f"{level} read",
        rate=rate,
        spread=0.0,
        repeats=7,
        level=level,
    )


def test_a_chain_meets_every_line_once() -> None:
    lines, start = make_chain(torch.device("cpu"), 128 * 500)
    seen, at = set(), int(start)
    for _ in range(500):
        assert (at - lines.data_ptr()) % 128 == 0
        seen.add(at)
        at = int(lines[(at - lines.data_ptr()) // 128, 0])
    assert len(seen) == 500
    assert at == int(start)
    # In random order: neighbours, which caches fetch ahead, rarely follow each other.
    steps = lines[:, 0] - torch.arange(500) * 128 - lines.data_ptr()
    assert (steps.abs() == 128).sum() < 10


def test_levels_get_their_latency_and_others_none() -> None:
    ceilings = [ceiling("DRAM", 4e12), ceiling("L2", 8e12), ceiling("PCIe h2d", 5e10, "link")]
    found = with_latencies(ceilings, {"DRAM": 600.0, "L1": 30.0})
    assert [each.latency_ns for each in found] == [600.0, None, None]
    # What one measurement found is not taken away by the next.
    found = with_latencies(found, {"PCIe h2d": 900.0})
    assert [each.latency_ns for each in found] == [600.0, None, 900.0]


def test_bytes_under_way_are_bandwidth_times_latency() -> None:
    (dram,) = with_latencies([ceiling("DRAM", 4e12)], {"DRAM": 600.0})
    assert bytes_in_flight(dram) == 4e12 * 600e-9
    slower = with_latencies([ceiling("DRAM", 3e12)], {"DRAM": 600.0})
    calibration = Calibration(
        device=Device(index=0, kind="cuda", name="NVIDIA H200"),
        torch="2",
        threads=None,
        measured_ns=0,
        ceilings=(*slower, dram),
    )
    (said,) = [text for text in remarks(calibration) if "Little" in text]
    # Of several rates of a level the largest is its roof.
    assert said.startswith("One load takes: DRAM 600 ns.")
    assert said.endswith("DRAM 2.40 MB.")
