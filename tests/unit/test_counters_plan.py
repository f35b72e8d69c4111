"""roofline.counting.plan: which launches a second run is counted for."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import storage
from gpuprof.profiler.run.counters_pass import ncu_options
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.counting.plan import (
    MOST_LAUNCHES,
    CountersPlan,
    plan_counters,
    window_of,
)

RECORDED = Path(__file__).resolve().parents[1] / "data" / "captures" / "h100_llama_block"


def kernels(build: CaptureBuilder, start: int, **launches: tuple[int, int]) -> None:
    """Kernels of a name: how many, and how long each."""
    at = start
    for name, (number, length) in launches.items():
        for _ in range(number):
            build.kernel(at, at, at + length, f"void ns::{name}<float>(int)")
            at += length


def steps(build: CaptureBuilder) -> None:
    """A warm-up step, then two profiled ones that run the same."""
    build.step("warmup", 0, 1000)
    build.step("profiled", 1000, 2000)
    build.step("profiled", 2000, 3000)


def plan(build: CaptureBuilder) -> CountersPlan:
    capture = build.build()
    found = plan_counters(capture, analyze(capture))
    assert found is not None
    return found


def test_one_launch_of_each_kernel_until_little_is_left_to_gain(build: CaptureBuilder) -> None:
    steps(build)
    for start in (1000, 2000):
        kernels(build, start, gemm=(4, 100), other=(1, 300), more=(1, 50), tail=(2, 2))
    found = plan(build)
    # Most gain for a launch first; what is left are 4 of 754 ns a step.
    assert found.kernels == ("gemm", "other", "more")
    assert (found.launches_of_each, found.launches, found.one_step) == (1, 3, True)
    assert found.gain_fraction == found.time_fraction == pytest.approx(750 / 754)


def test_a_later_template_of_a_function_and_grid_is_met(build: CaptureBuilder) -> None:
    steps(build)
    for start, name in ((1000, "add"), (1010, "add"), (1020, "mul"), (1500, "mul")):
        build.kernel(start, start, start + 10, f"void ns::elementwise<{name}>(int)")
    build.kernel(1600, 1600, 1610, "void ns::gemm<float>(int)")
    found = plan(build)
    # The third launch is the first product's: the function's first three, and the one of the other.
    assert (found.launches_of_each, found.launches) == (3, 4)
    assert found.gain_fraction == 1


def test_what_the_first_profiled_step_does_not_run_cannot_be_counted(build: CaptureBuilder) -> None:
    steps(build)
    kernels(build, 1000, gemm=(1, 100))
    kernels(build, 2000, gemm=(1, 100), rare=(1, 50))
    found = plan(build)
    assert found.kernels == ("gemm",)
    assert found.time_fraction == pytest.approx(0.8)


def test_launches_are_bounded(build: CaptureBuilder) -> None:
    build.step("warmup", 0, 100_000)
    build.step("profiled", 100_000, 200_000)
    build.step("profiled", 200_000, 300_000)
    lengths = {f"k{index:03d}": (1, 200 - index) for index in range(100)}
    kernels(build, 100_000, **lengths)
    kernels(build, 200_000, **(lengths | {"k099": (1, 900)}))
    found = plan(build)
    # Gain counts over both steps: the smallest of the first one is the largest of all.
    assert found.kernels[:2] == ("k099", "k000")
    assert found.launches == len(found.kernels) == MOST_LAUNCHES
    assert found.gain_fraction < 0.9


def test_a_program_without_steps_is_counted_from_its_start(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 3000)
    kernels(build, 1000, gemm=(2, 30))
    found = plan(build)
    assert (found.kernels, found.launches, found.one_step) == (("gemm",), 1, False)


def test_copies_and_collectives_are_not_counted(build: CaptureBuilder) -> None:
    build.kernel(0, 10, 20, "Memcpy HtoD", kind="memcpy")
    build.kernel(0, 20, 90, "ncclDevKernel_AllReduce", kind="collective")
    capture = build.build()
    assert plan_counters(capture, analyze(capture)) is None


def test_a_recorded_training_step_by_a_calculation_of_its_own() -> None:
    """What the plan's launches stand for, and that later operators of one grid are met."""
    capture = storage.load(RECORDED)
    analysis = analyze(capture)
    found = plan_counters(capture, analysis)
    assert found is not None
    assert found.launches <= MOST_LAUNCHES
    roofs: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for op in analysis.ops:
        key = f"{op.name} {op.detail} {op.phase}"
        roofs[key][0] += op.device_ns
        roofs[key][1] += min(op.roof_ns or 0, op.device_ns)
    gain = covered = 0.0
    for kernel in analysis.kernels:
        if kernel.kind != "kernel":
            continue
        device_ns, roof_ns = roofs[f"{kernel.op} {kernel.op_detail} {kernel.phase}"]
        above = kernel.device_ns * (1 - roof_ns / device_ns) if device_ns else kernel.device_ns
        gain += above
        if any(name in kernel.name for name in found.kernels):
            covered += above
    assert found.gain_fraction <= covered / gain + 1e-9
    assert found.gain_fraction > 0.9
    # Both halves of the step, where the first 64 launches were all of the forward pass.
    window = window_of(capture, one_step=True)
    rows = capture.kernels.with_row_index("row").filter(pl.col("row").is_in(window.implode()))
    assert rows["step"].n_unique() == 1
    assert any("bprop" in name for name in found.kernels)
    assert any("fprop" in name for name in found.kernels)


@pytest.mark.parametrize(("one_step", "from_start"), [(True, "no"), (False, "yes")])
def test_ncu_is_told_the_names_literally_and_the_window(one_step: bool, from_start: str) -> None:
    chosen = CountersPlan(("a$1", "b"), 2, 3, one_step, 1.0, 1.0)
    given = dict(pairwise(ncu_options(chosen, ("a.sum",), Path("page.csv"))))
    assert given["--kernel-name"] == r"regex:^(a\$1|b)$"
    assert (given["--launch-count"], given["--filter-mode"]) == ("2", "per-launch-config")
    assert given["--profile-from-start"] == from_start
