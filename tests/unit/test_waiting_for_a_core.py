"""A run on a busy machine says so, with the share of the timed steps that others had the core."""

import re

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.manifest import Device
from gpuprof.reports.sections.step import step_time_fact, stretch_fact
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.steps.waiting_for_a_core import busy_machine, waiting_fraction

CPU = Device(index=0, kind="cpu", name="a CPU")


def timed(build: CaptureBuilder, *steps: tuple[int, int | None]) -> None:
    """Timed steps of (host_ns, run_delay_ns)."""
    for index, (host_ns, waited_ns) in enumerate(steps):
        start = index * 1_000_000_000
        build.step("timed", start, start + host_ns, run_delay_ns=waited_ns)


@pytest.mark.parametrize(
    ("steps", "fraction"),
    [
        ([(100, 50), (300, 50)], 0.25),
        ([(100, 0), (100, 0)], 0.0),
        # Where one step was not counted, it is in neither sum.
        ([(100, 50), (900, None)], 0.5),
        ([(100, None)], None),
        ([], None),
    ],
)
def test_the_share_is_of_the_time_of_the_timed_steps(
    build: CaptureBuilder, steps: list[tuple[int, int | None]], fraction: float | None
) -> None:
    build.step("warmup", 0, 1000, run_delay_ns=900)
    timed(build, *steps)
    build.step("profiled", 10**12, 10**12 + 1000, run_delay_ns=900)
    found = analyze(build.build(CPU)).steps
    assert (found.waiting_fraction, found.profiled_waiting_fraction) == (fraction, 0.9)


def test_a_little_waiting_is_not_worth_a_word(build: CaptureBuilder) -> None:
    timed(build, (1000, 20))
    assert busy_machine(waiting_fraction(build.build().steps)) is None


def test_on_a_busy_machine_the_report_says_so_and_blames_nothing_else(
    build: CaptureBuilder,
) -> None:
    # The first five steps met others, and the rest did not: that is no settling clock.
    slow, fast = (20_000_000, 12_000_000), (8_000_000, 0)
    timed(build, *[slow] * 5, *[fast] * 5)
    warnings = analyze(build.build(CPU)).warnings
    (said,) = (line for line in warnings if "busy" in line)
    # 60 of 140 ms.
    assert re.search(r"for 43% of the timed steps the program waited", said)
    assert not [line for line in warnings if "settling" in line]


@pytest.mark.parametrize(
    ("timed_ns", "waited_ns", "profiled_ns", "value"),
    [
        (1000, 0, 1200, "+20.0%"),
        # A tenth of the steps, and the profiler's share of a fifth is not told from that.
        (1000, 100, 1200, "-"),
        (1000, 50, 1200, "+20.0%"),
        (1000, 300, 900, "-"),
        (1000, 0, 900, "no cost seen"),
    ],
)
def test_the_profilers_cost_is_not_told_from_what_others_took(
    build: CaptureBuilder, timed_ns: int, waited_ns: int, profiled_ns: int, value: str
) -> None:
    timed(build, *[(timed_ns, waited_ns)] * 3)
    build.step("profiled", 10**12, 10**12 + profiled_ns, run_delay_ns=0)
    steps = analyze(build.build(CPU)).steps
    assert stretch_fact(steps, None).value == value
    note = step_time_fact(steps).note
    assert ("waiting for a core" in note) is (waited_ns > 20)


def test_a_gpu_whose_own_clock_timed_the_steps_may_settle_as_well(build: CaptureBuilder) -> None:
    for index in range(10):
        start = index * 1_000_000_000
        length = 20_000_000 if index < 5 else 8_000_000
        build.step("timed", start, start + length, device_ns=length, run_delay_ns=length // 2)
    warnings = analyze(build.build()).warnings
    assert [line for line in warnings if "machine was busy" in line]
    assert [line for line in warnings if "settling" in line]
