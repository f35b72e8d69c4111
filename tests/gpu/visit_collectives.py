"""One visit to several GPUs: every version of the collectives, and what they must reach.

    torchrun --nproc-per-node 4 tests/gpu/visit_collectives.py [--output FOLDER]

Prints a table and what is wrong, writes collectives.json to FOLDER (default: $OUT, else here), and
exits 1 where something is. Without GPUs it runs small sizes on gloo, and only checks them.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from gpuprof.collectors.link_calibration import CollectiveTimes, LinkCalibration
from gpuprof.collectors.live.fingerprint import collect_fingerprint
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.reference_kernels.benching.coordination import Group
from gpuprof.reference_kernels.benching.run import BenchOptions, BenchPlan, run_plan
from gpuprof.reference_kernels.benching.timing import Clock, EventClock, HostClock
from gpuprof.reference_kernels.calibration.collectives import SIZES, measure_collectives
from gpuprof.reference_kernels.collectives.library import library_calls
from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.collectives.ring import ring_all_reduce
from gpuprof.reference_kernels.families import load_family
from gpuprof.reports.console.terminal import stdout
from gpuprof.reports.machine.link_calibration import lines_table, link_tables
from gpuprof.roofline.bench.results import CaseResult, Skipped
from gpuprof.roofline.bus_bandwidth import bus_factor

_LARGE = "1GiB"
_SMALL = ("4KiB", "16KiB", "64KiB", "128KiB")
_AGREES_WITHIN = 0.02
_CALIBRATION_AGREES_WITHIN = 0.05
_SIZES = {
    "cuda": (
        *(f"all-reduce:{size}" for size in (*_SMALL, "256KiB", "1MiB", "16MiB", "128MiB", _LARGE)),
        *(f"{name}:256MiB" for name in ("all-gather", "reduce-scatter", "all-to-all", "broadcast")),
    ),
    "cpu": ("all-reduce:64KiB", "all-gather:64KiB"),
}


class Visit(msgspec.Struct):
    """All that was seen, for a look at it without the GPUs."""

    ranks: int
    fingerprint: Fingerprint
    plain_loop_bus_bytes_per_s: list[float] = []
    ring_bytes_by_step: list[int] = []
    ring_message_bytes: int = 0
    nccl_kernels: dict[str, list[str]] = {}
    calibrated: list[CollectiveTimes] = []
    calibration_s: float = 0.0
    loop_ns: dict[str, float] = {}
    cases: list[CaseResult] = []
    skipped: list[Skipped] = []
    problems: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=float, default=0.25, help="for each version and size")
    arguments = parser.parse_args()
    cuda: Any = torch.cuda
    kind = "cuda" if cuda.is_available() else "cpu"
    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        cuda.set_device(device)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    started = time.perf_counter()
    fingerprint = collect_fingerprint()
    visit = Visit(dist.get_world_size(), fingerprint)
    clock: Clock = (
        EventClock(fingerprint.devices[0].l2_cache_bytes) if kind == "cuda" else HostClock()
    )
    options = BenchOptions(device, 7, arguments.seconds, clock, Group(device))

    count_ring_bytes(visit, device)
    began = time.perf_counter()
    sizes = SIZES[kind] if kind == "cuda" else SIZES[kind][:4]
    visit.calibrated += measure_collectives(device, sizes)
    visit.calibration_s = time.perf_counter() - began
    if kind == "cuda":
        visit.plain_loop_bus_bytes_per_s.append(plain_loop(device))
    for size in _SIZES[kind]:
        plan = BenchPlan(load_family("collectives"), size, "bf16" if kind == "cuda" else "fp32")
        for result in run_plan(plan, options):
            (visit.cases if isinstance(result, CaseResult) else visit.skipped).append(result)
    if kind == "cuda":
        # Once more at the end: the two show how steady the links were.
        visit.plain_loop_bus_bytes_per_s.append(plain_loop(device))
        visit.loop_ns = loops_of_calibrated(visit, device)
        name_nccl_kernels(visit, options)
        judge(visit)
        judge_calibration(visit)
    visit.problems += [f"{case.label}: {case.error}" for case in visit.cases if case.error]
    if dist.get_rank() == 0:
        show(visit)
        print(f"visit took {time.perf_counter() - started:.1f} s after torch's start")
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "collectives.json").write_bytes(msgspec.json.encode(visit))
    dist.destroy_process_group()
    return 1 if visit.problems else 0


def plain_loop(device: torch.device) -> float:
    """Bus bandwidth of 1 GiB by what anyone would write: all_reduce in a loop between events."""
    message = torch.ones(2**29, dtype=torch.bfloat16, device=device)
    seconds = seconds_in_a_loop(lambda: dist.all_reduce(message))
    rate: float = message.nbytes / seconds * bus_factor("all-reduce", dist.get_world_size())
    return rate


def seconds_in_a_loop(call: Callable[[], object]) -> float:
    """Of one `call`, made back to back: a lone one also waits for the streams to meet."""
    make_event: Any = torch.cuda.Event
    start, end = make_event(enable_timing=True), make_event(enable_timing=True)
    repeats = 20
    for _ in range(5):
        call()
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    seconds: float = start.elapsed_time(end) / 1e3 / repeats
    return seconds


def loops_of_calibrated(visit: Visit, device: torch.device) -> dict[str, float]:
    """Nanoseconds of each collective as it was calibrated, of the largest size, in a plain loop."""
    found = {}
    for one in visit.calibrated:
        if one.ranks == visit.ranks and not one.algorithm:
            elements = one.times[-1][0] // 4
            share = elements // one.ranks
            buffers = [torch.zeros(elements, device=device) for _ in range(2)]
            sent = buffers[0][: share if one.collective == "all-gather" else elements]
            got = buffers[1][: share if one.collective == "reduce-scatter" else elements]
            call = library_calls(sent, got, None)[one.collective]
            found[one.collective] = seconds_in_a_loop(call) * 1e9
    return found


def count_ring_bytes(visit: Visit, device: torch.device) -> None:
    """What each step of the written-out ring sends, against 2 (N-1) / N of the message."""
    problem = CollectiveProblem("all-reduce:1MiB", "fp32", device)
    buffer = problem.input.clone()
    sends = ring_all_reduce(buffer, torch.empty_like(buffer[: problem.share]))
    visit.ring_bytes_by_step = [send.bytes for send in sends]
    visit.ring_message_bytes = problem.message_bytes
    ranks = visit.ranks
    if sum(visit.ring_bytes_by_step) * ranks != 2 * (ranks - 1) * problem.message_bytes:
        visit.problems.append(f"the ring sent {visit.ring_bytes_by_step}")


def name_nccl_kernels(visit: Visit, options: BenchOptions) -> None:
    """Which kernels NCCL ran for each of its versions: their names hold the algorithm."""
    problem = CollectiveProblem("all-reduce:16MiB", "bf16", options.device)
    for version in load_family("collectives").versions:
        if not version.name.startswith("nccl"):
            continue
        prepared = version.prepare(problem)
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            prepared.call()
            torch.cuda.synchronize()
        names = {event.name for event in profiled.events() or () if "nccl" in event.name.lower()}
        visit.nccl_kernels[version.name] = sorted(names)


def judge(visit: Visit) -> None:
    """Compare the figures with what they must be."""
    time_of = {(c.version, c.size): c.median_ns for c in visit.cases if c.median_ns}
    bus_of = {
        (c.version, c.size): (c.bus_bytes or 0) / c.median_ns * 1e9
        for c in visit.cases
        if c.median_ns
    }
    ours = bus_of.get(("nccl", f"all-reduce:{_LARGE}"), 0.0)
    plain = sum(visit.plain_loop_bus_bytes_per_s) / len(visit.plain_loop_bus_bytes_per_s)
    if abs(ours / plain - 1) > _AGREES_WITHIN:
        visit.problems.append(f"{_LARGE}: {ours / 1e9:.1f} GB/s, a plain loop {plain / 1e9:.1f}")
    for size in _SMALL:
        nccl = time_of.get(("nccl", f"all-reduce:{size}"), 0)
        one_shot = time_of.get(("triton-one-shot-push", f"all-reduce:{size}"))
        if one_shot is None or one_shot >= nccl:
            visit.problems.append(f"{size}: one-shot {one_shot} ns, NCCL {nccl} ns")


def judge_calibration(visit: Visit) -> None:
    """What `gpuprof calibrate` measures agrees with a plain loop of the same collectives."""
    of_all = [one for one in visit.calibrated if one.ranks == visit.ranks]
    if {one.algorithm for one in of_all} != {"", "ring", "tree"}:
        visit.problems.append(f"calibrated {[(one.collective, one.algorithm) for one in of_all]}")
    for one in of_all:
        largest, ns = one.times[-1]
        loop_ns = None if one.algorithm else visit.loop_ns[one.collective]
        if loop_ns is not None and abs(ns / loop_ns - 1) > _CALIBRATION_AGREES_WITHIN:
            visit.problems.append(
                f"{one.collective} of {largest}: calibrated {ns} ns, in a loop {loop_ns} ns"
            )
        if one.times != tuple(sorted(one.times)):
            visit.problems.append(f"{one.collective}: sizes {one.times}")


def show(visit: Visit) -> None:
    """A short table, last in the output."""
    for skipped in visit.skipped:
        print(f"left out {skipped.label} {skipped.size}: {skipped.reason}")
    for case in visit.cases:
        rate = (case.bus_bytes or 0) / case.median_ns if case.median_ns else 0.0
        print(
            f"{case.version:16} {case.size:22} {(case.median_ns or 0) / 1e3:10.1f} us "
            f"{rate:7.1f} GB/s bus {len(case.samples_ns):5} calls "
            f"error {case.relative_error} {case.error or ''}"
        )
    calibration = LinkCalibration(
        device="here", torch=str(torch.__version__), collectives=tuple(visit.calibrated)
    )
    for table in (*link_tables(calibration), lines_table(calibration)):
        stdout().print(table)
    print(f"calibration of collectives took {visit.calibration_s:.1f} s")
    print("NCCL kernels", visit.nccl_kernels)
    print("plain loop", [f"{rate / 1e9:.1f} GB/s" for rate in visit.plain_loop_bus_bytes_per_s])
    print("calibrated in a loop", {name: f"{ns:.0f} ns" for name, ns in visit.loop_ns.items()})
    print("ring", visit.ring_bytes_by_step, "of", visit.ring_message_bytes)
    for problem in visit.problems:
        print("PROBLEM", problem)


if __name__ == "__main__":
    sys.exit(main())
