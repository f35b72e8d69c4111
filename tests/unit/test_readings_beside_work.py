"""NVML's samples beside work: clock, power and slow-downs of kernels and of timed steps."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.capture import Capture
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.reading_figures import WorkReading

MS = 1_000_000
# NVIDIA H100 whitepaper v1.04, table 2: bf16 dense at 1830 MHz.
PEAK_FLOPS, PEAK_CLOCK_MHZ = 989.4e12, 1830
N = 8192
CAP, THERMAL, IDLE = 0x4, 0x20, 0x1


def sampled(capture: Capture, *rows: dict[str, Any]) -> Analysis:
    """With samples of these times in ms, clocks, watts and reasons."""
    schema = capture.samples.schema
    frame = pl.DataFrame(
        [{"rank": 0, "device": 0, **row} for row in rows], infer_schema_length=None
    ).select(
        pl.col(name).cast(dtype)
        if name in rows[0] or name in ("rank", "device")
        else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )
    return analyze(replace(capture, samples=frame))


def sample(
    at_ms: float, clock: int | None, watts: float | None = None, reasons: int | None = 0
) -> dict[str, Any]:
    return {
        "time_ns": round(at_ms * MS),
        "sm_clock_mhz": clock,
        "power_milliwatts": None if watts is None else round(watts * 1e3),
        "throttle_reasons": reasons,
    }


def launches(build: CaptureBuilder, *spans_ms: tuple[float, float], **more: Any) -> Capture:
    """One profiled step with a product of bf16 for each of these times of its kernel."""
    for number, (start, end) in enumerate(spans_ms):
        build.mm(10 * number, 10 * number + 9, N, N, N)
        build.kernel(10 * number + 1, round(start * MS), round(end * MS), **more)
    build.step("profiled", 0, round(max(end for _, end in spans_ms) * MS))
    return build.build()


def kernel_of(analysis: Analysis) -> RooflinePoint:
    (point,) = analysis.kernels
    return point


def reading_of(analysis: Analysis) -> WorkReading:
    reading = kernel_of(analysis).reading
    assert reading is not None
    return reading


def test_a_long_kernel_has_the_samples_in_it_and_a_short_one_the_nearest(
    build: CaptureBuilder,
) -> None:
    capture = launches(build, (100, 160), (300, 320))
    found = reading_of(
        sampled(
            capture,
            sample(90, 1980, 100),
            sample(110, 1500, 500, CAP),
            sample(150, 1400, 600, CAP | THERMAL),
            # Nearest to the second, which took a quarter of the time.
            sample(350, 1700, 300, IDLE),
            sample(900, 345, 80),
        )
    )
    assert found.sm_clock_mhz == round(0.75 * 1450 + 0.25 * 1700)
    assert found.power_watts == pytest.approx(0.75 * 550 + 0.25 * 300)
    assert found.slowed_by == ("software power cap", "software thermal slowdown")
    assert found.covered_fraction == 1.0


def test_the_roof_at_the_clock_that_ran(build: CaptureBuilder) -> None:
    analysis = sampled(launches(build, (100, 102)), sample(101, 1464, 690.0, CAP))
    point, found = kernel_of(analysis), reading_of(analysis)
    least_ns = 2 * N**3 / PEAK_FLOPS * PEAK_CLOCK_MHZ / 1464 * 1e9
    assert found.roof_ns == pytest.approx(least_ns, rel=1e-6)
    assert found.roof_fraction == pytest.approx(least_ns / (2 * MS), rel=1e-6)
    assert point.roof_fraction == pytest.approx(found.roof_fraction * 1464 / PEAK_CLOCK_MHZ)
    page = render_html(analysis)
    assert "At its clock" in page
    assert "slowed down by software power cap" in page
    assert "1464 MHz" in page


def test_work_that_no_sample_is_near_has_no_reading_and_a_part_says_how_much(
    build: CaptureBuilder,
) -> None:
    capture = launches(build, (100, 110), (400, 430))
    found = reading_of(sampled(capture, sample(60, 1500), sample(900, 345)))
    assert (found.sm_clock_mhz, found.power_watts) == (1500, None)
    assert found.covered_fraction == pytest.approx(0.25)
    assert kernel_of(sampled(capture, sample(2000, 345))).reading is None
    page = render_html(sampled(capture, sample(2000, 345)))
    assert "At its clock" not in page


def test_samples_of_another_device_are_not_the_works(build: CaptureBuilder) -> None:
    other = sampled(launches(build, (100, 110)), {**sample(105, 1500), "device": 1})
    assert kernel_of(other).reading is None


def test_launches_on_another_device_are_a_part_without_samples(build: CaptureBuilder) -> None:
    launches(build, (100, 110))
    build.mm(500, 509, N, N, N)
    build.kernel(501, 100 * MS, 130 * MS, device=1)
    found = reading_of(sampled(build.build(), sample(105, 1500)))
    assert found.covered_fraction == pytest.approx(0.25)


def test_what_nvml_did_not_answer_is_unknown(build: CaptureBuilder) -> None:
    found = reading_of(sampled(launches(build, (100, 110)), sample(105, None, 500, None)))
    assert (found.sm_clock_mhz, found.slowed_by, found.roof_ns) == (None, None, None)
    assert found.power_watts == 500


def timed(build: CaptureBuilder, *lengths_ms: int) -> Capture:
    at = 0
    for length in lengths_ms:
        times = {"device_ns": length * MS, "device_start_ns": at}
        build.step("timed", at, at + length * MS, **times)
        at += length * MS
    build.mm(at + 10, at + 19)
    build.kernel(at + 11, at + 20, at + 30)
    build.step("profiled", at, at + MS)
    return build.build()


def test_steps_with_the_same_readings_are_one_row(build: CaptureBuilder) -> None:
    capture = timed(build, *(4 for _ in range(20)))
    analysis = sampled(
        capture, sample(9, 1500, 500, CAP), sample(30, 1500, 500, CAP), sample(61, 1400, 600)
    )
    rows = [
        (each.first_step, each.last_step, each.sm_clock_mhz, each.power_watts, each.slowed_by)
        for each in analysis.step_readings
    ]
    # The middle of step 11 is at 46 ms, nearer to 61 than to 30.
    assert rows == [
        (0, 10, 1500, 500, ("software power cap",)),
        (11, 19, 1400, 600, ()),
    ]
    assert all(each.mean_ns == 4 * MS for each in analysis.step_readings)
    assert all(each.tensor_active is None for each in analysis.step_readings)
    page = render_markdown(analysis)
    assert "| 0 to 10 | 4.000 ms | 1500 MHz | 500 W | software power cap |" in page
    assert "| 11 to 19 | 4.000 ms | 1400 MHz | 600 W | nothing |" in page


def test_a_step_that_holds_a_window_has_its_activity(build: CaptureBuilder) -> None:
    """Windows that may hold something from before the step, or reach beyond it, are not its."""
    windows = [
        {**sample(at, 1500), "window_start_ns": start * MS, "window_end_ns": end * MS}
        | {"tensor_active_percent": percent, "nvlink_tx_bytes_per_s": 10**9}
        for at, start, end, percent in (
            (205, 100, 200, 90.0),
            (305, 200, 300, 50.0),
            (405, 300, 400, 70.0),
            (505, 400, 520, 10.0),
        )
    ]
    analysis = sampled(timed(build, 500, 40), *windows)
    first, second = analysis.step_readings
    assert first.tensor_active == pytest.approx(0.6)
    assert first.nvlink_tx_bytes_per_s == 10**9
    assert (first.dram_active, second.tensor_active) == (None, None)
    assert "Tensor cores" in render_markdown(analysis)


def test_without_samples_there_are_no_readings(build: CaptureBuilder) -> None:
    analysis = analyze(timed(build, 4, 4))
    assert analysis.step_readings == ()
    assert all(each.reading is None for each in analysis.kernels)
    assert "Clock and power" not in render_markdown(analysis)
