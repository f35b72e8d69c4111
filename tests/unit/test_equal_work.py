"""Ratios of counted work and time: of the same steps, or of steps that did the same."""

from typing import Any

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import Analysis, Bottleneck
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.points.gains import in_an_unprofiled_step
from gpuprof.roofline.step_figures import StepTimes

FLOPS = 2 * 64 * 32 * 16
PEAK = 989.4e12
CPU = Device(index=0, kind="cpu", name="a CPU")


def trained(
    build: CaptureBuilder, products: tuple[int, ...], *timed_ns: int, length: int = 4000
) -> Analysis:
    """Timed steps of these device times, then one profiled step of `length` for each number of
    products, which fill it."""
    for index, nanoseconds in enumerate(timed_ns):
        build.step("timed", 10_000 + index, 10_001 + index, device_ns=nanoseconds)
    start = 100_000
    for number in products:
        build.step("profiled", start, start + length)
        for index in range(number):
            at = start + index * (length // number)
            build.mm(at, at + 5)
            build.kernel(at + 1, at + 6, at + length // number)
        start += length
    return analyze(build.build())


def test_steps_of_equal_work_keep_the_time_without_the_profiler(build: CaptureBuilder) -> None:
    analysis = trained(build, (4, 4, 4), 3800, 3800, 3900)
    assert analysis.steps.unequal == ""
    use = analysis.utilization
    assert use is not None
    assert (use.basis, use.step_ns) == ("timed", 3800)


def test_profiled_steps_that_differ_are_divided_by_their_own_time(build: CaptureBuilder) -> None:
    # A short step in the middle of what is timed: the mean of 4 and 40 products over it would be
    # over five times the truth.
    analysis = trained(build, (4, 40), 4000, 4000, 4000)
    assert "FLOP each" in analysis.steps.unequal
    use = analysis.utilization
    assert use is not None
    assert use.basis == "device period"
    assert use.mfu == pytest.approx(22 * FLOPS / (use.step_ns * 1e-9) / PEAK)
    assert analysis.steps.profiled_mean_ns == use.step_ns
    assert any("steps differ in work" in warning for warning in analysis.warnings)


def test_timed_steps_that_are_shorter_than_the_profiled_ones_work_did_less(
    build: CaptureBuilder,
) -> None:
    analysis = trained(build, (4, 4), 500, 510, 520)
    assert "longer than a timed one takes" in analysis.steps.unequal
    assert analysis.utilization is not None
    assert analysis.utilization.step_ns == analysis.steps.profiled_mean_ns
    assert analysis.split is not None
    assert analysis.split.basis == "device period"


def test_declared_tokens_tell_that_steps_differ(build: CaptureBuilder) -> None:
    for index, tokens in enumerate((100, 300)):
        build.step("timed", -90_000 + index, -89_999 + index, device_ns=4000, tokens=tokens)
    build.step("profiled", 0, 4000, tokens=600)
    build.mm(0, 5)
    build.kernel(1, 6, 4000)
    analysis = analyze(build.build())
    assert analysis.steps.unequal == "a timed step has 200 tokens, a profiled one 600"
    # Over the same steps: 400 tokens in 8000 ns.
    assert analysis.steps.tokens_per_s == pytest.approx(400 / 8000e-9)


def test_tokens_of_equal_steps_are_over_the_median_step(build: CaptureBuilder) -> None:
    for index, device_ns in enumerate((4000, 4000, 9000)):
        build.step("timed", -90_000 + index, -89_999 + index, device_ns=device_ns, tokens=8)
    build.step("profiled", 0, 4000, tokens=8)
    build.mm(0, 5)
    build.kernel(1, 6, 3900)
    assert analyze(build.build()).steps.tokens_per_s == pytest.approx(8 / 4000e-9)


def clocks(build: CaptureBuilder, timed_mhz: int, profiled_mhz: int) -> None:
    for time_ns, clock in ((12_000, timed_mhz), (102_000, profiled_mhz)):
        build.rows["samples"].append({"time_ns": time_ns, "device": 0, "sm_clock_mhz": clock})


def test_a_clock_that_came_down_is_not_other_work(build: CaptureBuilder) -> None:
    # 20 % longer at a clock 20 % lower.
    clocks(build, 1980, 1584)
    analysis = trained(build, (4, 4), 3200, 3200, 3200)
    assert analysis.steps.unequal == ""
    assert analysis.device_state is not None
    assert analysis.device_state.profiled_sm_clock_mhz_median == 1584


def test_at_the_same_clock_longer_work_is_other_work(build: CaptureBuilder) -> None:
    clocks(build, 1980, 1980)
    assert trained(build, (4, 4), 3200, 3200, 3200).steps.unequal != ""


def times(timed: int, profiled: int, **more: Any) -> StepTimes:
    return StepTimes(
        found_by="",
        warmup=0,
        timed=1,
        profiled=1,
        clock="",
        median_ns=timed,
        profiled_mean_ns=profiled,
        **more,
    )


@pytest.mark.parametrize(
    ("gain_ns", "on_cpu", "expected", "between"),
    [
        (300, False, 300, None),
        # Never more than the step is long: the figure was of the profiled step.
        (4490, False, 1030, None),
        # A CPU's work is stretched with its step: by a third as much, by nothing, or by all that
        # the profiler added, 1970.
        (300, True, 103, (0, 300)),
        (2400, True, 824, (430, 1030)),
        (4490, True, 1030, (1030, 1030)),
        (None, True, None, None),
    ],
)
def test_a_gain_is_one_that_a_step_can_have(
    gain_ns: int | None, on_cpu: bool, expected: int | None, between: tuple[int, int] | None
) -> None:
    verdict = Bottleneck("memory", "", gain_ns)
    found = in_an_unprofiled_step(verdict, times(1030, 3000), on_cpu=on_cpu)
    assert (found.gain_ns, found.gain_range_ns) == (expected, between)


def test_a_gain_among_unequal_steps_is_bounded_by_the_profiled_ones() -> None:
    verdict = Bottleneck("memory", "", 5000)
    found = in_an_unprofiled_step(verdict, times(1030, 3000, unequal="so"), on_cpu=False)
    assert found.gain_ns == 3000


def test_no_gain_of_a_cpu_run_is_longer_than_its_step(build: CaptureBuilder) -> None:
    build.step("timed", -90_000, -89_500)
    build.step("profiled", 0, 4000)
    build.mm(0, 3900)
    build.rows["kernels"].append(
        {"name": "aten::mm", "kind": "op", "start_ns": 0, "end_ns": 3900, "op_id": 0, "device": 0}
    )
    analysis = analyze(build.build(CPU))
    points = (*analysis.ops, *analysis.kernels)
    gains = [p.bottleneck.gain_ns for p in points] + [analysis.bottleneck.gain_ns]
    assert all(gain is None or gain <= 500 for gain in gains)


def test_where_the_profiler_added_nothing_a_gain_has_no_range() -> None:
    verdict = Bottleneck("memory", "", 300)
    found = in_an_unprofiled_step(verdict, times(1030, 1000), on_cpu=True)
    assert (found.gain_ns, found.gain_range_ns) == (300, None)


@pytest.mark.parametrize(
    ("waiting", "expected", "between"),
    [
        # Of the 1000 ns of a profiled step others had the core for 400.
        (0.4, 700, (300, 700)),
        (0.9, 700, (0, 700)),
        (0.01, 700, None),
        (None, 700, None),
    ],
)
def test_what_other_programs_took_may_be_all_of_a_gain(
    waiting: float | None, expected: int, between: tuple[int, int] | None
) -> None:
    verdict = Bottleneck("memory", "", 700)
    seen = times(1200, 1000, profiled_waiting_fraction=waiting)
    found = in_an_unprofiled_step(verdict, seen, on_cpu=True)
    assert (found.gain_ns, found.gain_range_ns) == (expected, between)
    # What the profiler added, 1970, and then the others' tenth of 3000.
    large = Bottleneck("memory", "", 2400)
    stretched = times(1030, 3000, profiled_waiting_fraction=0.1)
    both = in_an_unprofiled_step(large, stretched, on_cpu=True)
    assert (both.gain_ns, both.gain_range_ns) == (824, (130, 1030))
    on_gpu = in_an_unprofiled_step(verdict, seen, on_cpu=False)
    assert on_gpu.gain_range_ns is None
