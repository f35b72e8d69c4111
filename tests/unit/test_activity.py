"""Activity that the device counted, beside the models: windows, shares and reasons."""

from dataclasses import replace
from typing import Any

import msgspec
import polars as pl
import pytest
from capture_builder import H100, CaptureBuilder

from gpuprof.collectors.capture import Capture
from gpuprof.reports.markdown import render_markdown
from gpuprof.roofline.activity_figures import Activity
from gpuprof.roofline.analyze import analyze

MS = 1_000_000
# NVIDIA H100 whitepaper v1.04, table 2: bf16 dense at 1830 MHz, and DRAM.
PEAK_FLOPS, PEAK_CLOCK_MHZ, PEAK_BYTES = 989.4e12, 1830, 3350e9
N = 8192
STEP_NS = 5 * MS
CAPABLE = msgspec.structs.replace(H100, compute_capability="9.0")


def products(build: CaptureBuilder, *, timed: int = 100, kernel: str = "k") -> Capture:
    """Steps of one product, `timed` of them from 0 on and then three under the profiler."""
    for number in range(timed):
        start = number * STEP_NS
        times = {"device_ns": STEP_NS, "device_start_ns": start}
        build.step("timed", start, start + STEP_NS, **times)
    for number in range(3):
        start = 2000 * MS + number * STEP_NS
        build.step("profiled", start, start + STEP_NS)
        build.mm(start, start + 100, N, N, N)
        build.kernel(start + 10, start + 20, start + STEP_NS, name=kernel)
    return build.build(CAPABLE)


def sampled(capture: Capture, rows: list[dict[str, Any]]) -> Activity | None:
    """With samples at these times; rates that a row has none of are unknown."""
    frame = pl.DataFrame(
        [{"rank": 0, "device": 0, "sm_clock_mhz": 1500, **row} for row in rows],
        infer_schema_length=None,
    )
    schema = capture.samples.schema
    frame = frame.select(
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )
    return analyze(replace(capture, samples=frame)).activity


def window(end_ms: int, tensor: float | None, dram: float | None = 10.0) -> dict[str, Any]:
    return {
        "time_ns": end_ms * MS,
        "tensor_active_percent": tensor,
        "dram_active_percent": dram,
    }


def test_the_mean_of_whole_windows_beside_what_the_products_need(build: CaptureBuilder) -> None:
    capture = products(build)
    needed = 2 * N**3 / (PEAK_FLOPS * 1500 / PEAK_CLOCK_MHZ) / (STEP_NS / 1e9)
    percent = needed * 100
    found = sampled(
        capture,
        [
            # Begins before the steps; nobody knows when.
            window(50, 1.0),
            window(150, percent + 5),
            window(350, percent - 2.5, 40.0),
            # Ends after the timed steps.
            window(550, 3.0),
        ],
    )
    assert found is not None
    assert (found.windows, found.window_ns) == (2, 150 * MS)
    assert found.covered_fraction == pytest.approx(300 / 500)
    # One window is twice as long as the other.
    assert found.tensor_active == pytest.approx(needed, rel=1e-5)
    assert found.dram_active == pytest.approx(0.3)
    assert found.modelled_tensor == pytest.approx(needed)
    assert found.clock_mhz == 1500
    assert found.tensor_reason == ""
    assert found.dram_bytes == pytest.approx(0.3 * PEAK_BYTES * STEP_NS / 1e9)
    assert found.modelled_bytes == 3 * 2 * N**2
    assert "read again" in found.dram_reason


@pytest.mark.parametrize(
    ("kernel", "factor", "reason"),
    [
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1", 2.2, "kernels for sm75"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NTN", 1.5, "no reason is known; tiles"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NTN", 0.5, "no reason is known; algorithms"),
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1", 1.11, ""),
    ],
)
def test_a_difference_has_its_reason(
    build: CaptureBuilder, kernel: str, factor: float, reason: str
) -> None:
    needed = 2 * N**3 / (PEAK_FLOPS * 1500 / PEAK_CLOCK_MHZ) / (STEP_NS / 1e9)
    found = sampled(
        products(build, kernel=kernel), [window(100, 0.0), window(300, 100 * needed * factor)]
    )
    assert found is not None
    assert reason in found.tensor_reason
    assert bool(found.tensor_reason) == bool(reason)


def test_work_without_a_model_is_the_reason_where_there_is_some(build: CaptureBuilder) -> None:
    for number in range(3):
        start = 2000 * MS + number * STEP_NS
        build.op("mine::product", start + 200, start + 300)
        build.kernel(start + 210, start + 20, start + STEP_NS // 2, name="mine", stream=8)
    found = sampled(products(build), [window(100, 0.0), window(300, 99.0)])
    assert found is not None
    assert found.tensor_reason.endswith("of device time has no FLOP model")


def test_steps_that_are_too_short_for_a_window_say_how_many_it_needs(build: CaptureBuilder) -> None:
    capture = products(build, timed=10)
    # Once the steps are over, counters are read once a second.
    found = sampled(capture, [window(20, 5.0), window(120, 5.0), window(1120, 5.0)])
    assert found is not None
    assert (found.windows, found.tensor_active) == (0, None)
    assert found.steps_needed == 2 * 100 * MS // STEP_NS


def test_without_timed_steps_there_is_no_activity(build: CaptureBuilder) -> None:
    assert sampled(products(build, timed=0), [window(100, 5.0), window(300, 5.0)]) is None


def test_a_device_without_counters_has_no_activity(build: CaptureBuilder) -> None:
    assert sampled(products(build), [window(100, None, None), window(300, None, None)]) is None


def test_a_rate_that_is_unknown_stays_unknown(build: CaptureBuilder) -> None:
    found = sampled(products(build), [window(100, None), window(300, None, 20.0)])
    assert found is not None
    assert found.tensor_active is None
    assert found.tensor_reason == ""
    assert found.dram_active == pytest.approx(0.2)


def test_what_several_devices_did_is_not_compared_with_the_counters_of_one(
    build: CaptureBuilder,
) -> None:
    for number in range(3):
        start = 2000 * MS + number * STEP_NS
        build.mm(start + 200, start + 300, N, N, N)
        build.kernel(start + 210, start + 20, start + STEP_NS, device=1)
    found = sampled(products(build), [window(100, 0.0), window(300, 50.0, 20.0)])
    assert found is not None
    assert (found.tensor_active, found.dram_active) == (0.5, pytest.approx(0.2))
    assert (found.modelled_tensor, found.modelled_tensor_full) == (None, None)
    assert (found.modelled_bytes, found.tensor_reason, found.dram_reason) == (None, "", "")


def test_steps_that_did_other_work_than_the_timed_ones_are_not_compared(
    build: CaptureBuilder,
) -> None:
    """Every profiled step has ten times the work that the timed ones had time for."""
    for number in range(3):
        start = 2000 * MS + number * STEP_NS
        for other in range(9):
            build.mm(start + 200 + other, start + 300, N, N, N)
            build.kernel(start + 210, start + 20 * MS * (other + 1), start + 20 * MS * (other + 2))
    found = sampled(products(build), [window(100, 0.0), window(300, 50.0)])
    assert found is not None
    assert found.tensor_active == 0.5
    assert found.modelled_tensor is None


def test_a_clock_that_nobody_saw_is_said_to_be_the_datasheets(build: CaptureBuilder) -> None:
    capture = products(build)
    rows = [{**each, "sm_clock_mhz": None} for each in (window(100, 0.0), window(300, 90.0))]
    found = sampled(capture, rows)
    assert found is not None
    assert found.clock_mhz is None
    assert found.modelled_tensor == pytest.approx(2 * N**3 / PEAK_FLOPS / (STEP_NS / 1e9))


def test_the_report_says_both_sides_with_windows_and_coverage(build: CaptureBuilder) -> None:
    for number in range(3):
        start = 2000 * MS + number * STEP_NS
        build.op("mine::product", start + 200, start + 300)
        build.kernel(start + 210, start + 20, start + STEP_NS // 2, name="mine", stream=8)
    capture = products(build)
    rows = [window(100, 0.0), window(300, 34.0, 12.0)]
    frame = pl.DataFrame([{"rank": 0, "device": 0, **row} for row in rows])
    samples = pl.concat([capture.samples, frame], how="diagonal_relaxed")
    page = render_markdown(analyze(replace(capture, samples=samples.cast(capture.samples.schema))))
    assert "## Activity counted by the device" in page
    assert "of the whole device: 1 window of 200 ms, 40.0% of the timed steps" in page
    assert "without a FLOP model" in page
    assert "at the datasheet's clock" in page
