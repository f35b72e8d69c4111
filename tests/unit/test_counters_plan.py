"""roofline.measured.counters_plan: which kernels a second run is counted for."""

from itertools import pairwise
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder

from gpuprof.profiler.run.counters_pass import ncu_options
from gpuprof.roofline.measured.counters_plan import MOST_LAUNCHES, CountersPlan, plan_counters
from gpuprof.roofline.work.attribution import attribute


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
    found = plan_counters(attribute(build.build()))
    assert found is not None
    return found


def test_the_largest_kernels_up_to_four_fifths_of_one_step(build: CaptureBuilder) -> None:
    steps(build)
    for start in (1000, 2000):
        kernels(build, start, small=(1, 10), gemm=(2, 30), other=(1, 25), tail=(1, 5))
    assert plan(build) == CountersPlan(("gemm", "other"), launches=3, one_step=True)


def test_at_most_eight_kernels(build: CaptureBuilder) -> None:
    steps(build)
    kernels(build, 1000, **{f"k{letter}": (1, 10) for letter in "abcdefghijklm"})
    found = plan(build)
    assert found.kernels == ("ka", "kb", "kc", "kd", "ke", "kf", "kg", "kh")
    assert found.launches == 8


def test_a_name_with_many_launches_is_passed_over(build: CaptureBuilder) -> None:
    steps(build)
    kernels(build, 1000, pointwise=(30, 10), gemm=(1, 400), other=(1, 50))
    assert plan(build).kernels == ("gemm", "other")


def test_where_all_names_have_many_launches_counting_ends_within_the_step(
    build: CaptureBuilder,
) -> None:
    steps(build)
    for start in (1000, 2000):
        kernels(build, start, a=(50, 4), b=(40, 4), c=(1, 4))
    assert plan(build) == CountersPlan(("a", "b"), MOST_LAUNCHES, one_step=True)


def test_a_program_without_steps_is_counted_from_its_start(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 3000)
    kernels(build, 1000, gemm=(2, 30))
    assert plan(build) == CountersPlan(("gemm",), launches=2, one_step=False)


def test_copies_and_collectives_are_not_counted(build: CaptureBuilder) -> None:
    build.kernel(0, 10, 20, "Memcpy HtoD", kind="memcpy")
    build.kernel(0, 20, 90, "ncclDevKernel_AllReduce", kind="collective")
    assert plan_counters(build.build()) is None


@pytest.mark.parametrize(("one_step", "from_start"), [(True, "no"), (False, "yes")])
def test_ncu_is_told_the_names_literally_and_the_window(one_step: bool, from_start: str) -> None:
    options = ncu_options(CountersPlan(("a$1", "b"), 3, one_step), Path("page.csv"))
    given = dict(pairwise(options))
    assert given["--kernel-name"] == r"regex:^(a\$1|b)$"
    assert (given["--launch-count"], given["--kill"]) == ("3", "yes")
    assert given["--profile-from-start"] == from_start
