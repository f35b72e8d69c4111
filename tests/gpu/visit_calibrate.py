"""One visit to a GPU: fingerprint, NVML and GPM readings, doctor, and two calibrations.

    python tests/gpu/visit_calibrate.py [--output FOLDER]

Prints what it found, writes calibrate.json to FOLDER (default: $OUT, else here), and exits 1
where something did not work or a rate is below what the device must reach.
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec
import torch
from rich.console import Console

from gpuprof.collectors.live.fingerprint import collect_fingerprint
from gpuprof.collectors.live.nvml.sampler import NvmlSampler
from gpuprof.collectors.manifest import Calibration, Device, Fingerprint
from gpuprof.profiler.machine.checks import Check, all_checks
from gpuprof.reference_kernels.calibration.conditions import stop_sampling
from gpuprof.reference_kernels.calibration.copies import latency_and_rate
from gpuprof.reference_kernels.calibration.measure import calibrate
from gpuprof.reports.machine.calibration import ceiling_table, copies_table, remarks
from gpuprof.reports.machine.checks import checks_table
from gpuprof.roofline.machine.devices import find_spec

# Rates that a healthy device reaches: (name of the ceiling, bytes or FLOP a second).
_MUST_REACH = {
    "NVIDIA H100 SXM5 80GB": (("DRAM copy", 2.9e12), ("GEMM bf16", 740e12)),
    "NVIDIA H200 SXM": (("DRAM copy", 4.1e12), ("GEMM bf16", 740e12)),
}
_REPEATABLE_WITHIN = 0.02
# The rate of copies by the profiler's times and by events.
_COPIES_WITHIN = 0.05

T = TypeVar("T")


class Visit(msgspec.Struct):
    """All that was seen, for a look at it without the GPU."""

    fingerprint: Fingerprint | None = None
    checks: list[Check] = []
    samples: list[dict[str, float | None]] = []
    notes: list[str] = []
    calibrations: list[Calibration] = []
    problems: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    console = Console(width=120)
    visit = Visit()
    started = time.perf_counter()

    visit.fingerprint = _attempt(visit, "fingerprint", collect_fingerprint)
    if visit.fingerprint is not None:
        print(msgspec.json.format(msgspec.json.encode(visit.fingerprint)).decode())
    visit.checks = _attempt(visit, "doctor", all_checks) or []
    console.print(checks_table(visit.checks))
    _attempt(visit, "NVML under load", lambda: _sample_under_load(visit, console))
    for device in visit.fingerprint.devices[:1] if visit.fingerprint else ():
        _attempt(visit, "calibration", lambda: _calibrate_twice(visit, device, console))  # noqa: B023

    print(f"visit took {time.perf_counter() - started:.1f} s")
    for problem in visit.problems:
        print(f"PROBLEM {problem}")
    (output / "calibrate.json").write_bytes(msgspec.json.encode(visit))
    return 1 if visit.problems else 0


def _attempt(visit: Visit, name: str, work: Callable[[], T]) -> T | None:
    try:
        return work()
    # A visit is dear: the parts after a broken one still run.
    except Exception:
        visit.problems.append(f"{name}: {traceback.format_exc()}")
        return None


def _sample_under_load(visit: Visit, console: Console) -> None:
    """Half a second of matrix products: clocks, power and tensor activity must show it."""
    sampler = NvmlSampler([0], interval_ns=100_000_000)
    sampler.start()
    left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    end = time.perf_counter() + 1.0
    while time.perf_counter() < end:
        left @ left
        torch.cuda.synchronize()
    frame = stop_sampling(sampler)
    console.print(frame.select(c for c in frame.columns if frame[c].null_count() < frame.height))
    visit.samples = frame.to_dicts()
    visit.notes = sampler.notes
    print("notes:", *sampler.notes, sep="\n  ")
    if frame.height < 5:
        visit.problems.append(f"only {frame.height} NVML samples in a second")
    peak = frame["tensor_active_percent"].max()
    if not isinstance(peak, float) or not 50 < peak <= 100:
        visit.problems.append(f"GPM tensor activity under matrix products is {peak} %")


def _calibrate_twice(visit: Visit, device: Device, console: Console) -> None:
    """Both runs in full, each rate within 2 % of the other, and none above the datasheet by far."""
    for _ in range(2):
        started = time.perf_counter()
        calibration = calibrate(device)
        console.print(ceiling_table(calibration))
        console.print(copies_table(calibration))
        _check_copies(visit, calibration)
        _check_levels(visit, calibration)
        print(*remarks(calibration), sep="\n")
        print(f"calibration took {time.perf_counter() - started:.1f} s")
        visit.calibrations.append(calibration)
    first, second = visit.calibrations
    rates = {ceiling.name: ceiling.rate for ceiling in first.ceilings}
    for ceiling in second.ceilings:
        # What the driver does with pageable memory is the host's doing.
        if not ceiling.name.endswith("pageable"):
            _compare(visit, ceiling.name, rates[ceiling.name], ceiling.rate)
    for before, after in zip(first.launch_costs, second.launch_costs, strict=True):
        _compare(visit, f"{before.what}, device", before.device_ns or 0, after.device_ns or 0)
        # A shared host's own speed changes by more than 2 % within seconds.
        print(f"{before.what}, host: {before.host_ns:.0f} ns and {after.host_ns:.0f} ns")
    visit.problems += [f"left out: {reason}" for reason in first.left_out]
    spec = find_spec(device).spec
    if spec is None:
        visit.problems.append(f"no datasheet row: {find_spec(device).reason}")
        return
    for name, least in _MUST_REACH.get(spec.name, ()):
        if rates[name] < least:
            visit.problems.append(f"{name} reached {rates[name]:.4g}, must reach {least:.4g}")


def _check_levels(visit: Visit, calibration: Calibration) -> None:
    """Nearer levels answer sooner and give more."""
    levels = {each.level: each for each in calibration.ceilings if each.kind == "memory"}
    order = ("L1", "L2", "DRAM")
    missing = [level for level in (*order, "shared") if level not in levels]
    if missing:
        visit.problems.append(f"not measured: {missing}")
        return
    for near, far in pairwise(levels[level] for level in order):
        if near.latency_ns is None or far.latency_ns is None:
            visit.problems.append(f"no latency of {near.level} or {far.level}")
        elif not near.latency_ns < far.latency_ns or near.rate < far.rate:
            visit.problems.append(f"{near} is not nearer than {far}")


def _check_copies(visit: Visit, calibration: Calibration) -> None:
    """Pinned copies both ways: a few microseconds at any size, and at last the link's rate."""
    rates = {ceiling.level: ceiling.rate for ceiling in calibration.ceilings}
    pinned = [copies for copies in calibration.copies if copies.host_memory == "pinned"]
    if len(pinned) != 2:
        visit.problems.append(f"{len(pinned)} of 2 directions of pinned copies were measured")
    for copies in pinned:
        level = "PCIe h2d" if copies.direction == "host to device" else "PCIe d2h"
        latency_ns, rate = latency_and_rate(copies.times)
        print(f"{level}: {latency_ns:.0f} ns of any size, then {rate / 1e9:.3g} GB/s")
        if not 300 < latency_ns < 10_000:
            visit.problems.append(f"{level}: {latency_ns:.0f} ns of any size")
        if abs(rate / rates[level] - 1) > _COPIES_WITHIN:
            visit.problems.append(f"{level}: {rate:.4g} B/s by size, {rates[level]:.4g} by events")


def _compare(visit: Visit, name: str, first: float, second: float) -> None:
    change = second / first - 1
    print(f"{name:<24} second run {change:+.2%}")
    if abs(change) > _REPEATABLE_WITHIN:
        visit.problems.append(f"{name} changed by {change:+.2%} between two runs")


if __name__ == "__main__":
    sys.exit(main())
