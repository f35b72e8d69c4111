"""Activity that the device counted, beside the models: windows, shares and reasons."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import polars as pl
import pytest
from capture_builder import H100, CaptureBuilder

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.reports.markdown import render_markdown
from gpuprof.roofline.activity_figures import Activity, Reconciliation
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.measured.alarms import differs, is_unexplained

MS = 1_000_000
# NVIDIA H100 whitepaper v1.04, table 2: bf16 dense at 1830 MHz, and DRAM.
PEAK_FLOPS, PEAK_CLOCK_MHZ, PEAK_BYTES = 989.4e12, 1830, 3350e9
N = 8192
STEP_NS = 5 * MS
CAPABLE = msgspec.structs.replace(H100, compute_capability="9.0")


def products(
    build: CaptureBuilder,
    *,
    timed: int = 100,
    kernel: str = "k",
    beside: Callable[[int], None] | None = None,
    **process: Any,
) -> Capture:
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
        if beside is not None:
            beside(start)
    return build.build(CAPABLE, **process)


def sampled(capture: Capture, rows: list[dict[str, Any]]) -> Activity | None:
    """What is found with samples at these times."""
    return analyze(with_samples(capture, rows)).activity


def with_samples(capture: Capture, rows: list[dict[str, Any]]) -> Capture:
    """Samples at these times; rates that a row has none of are unknown."""
    frame = pl.DataFrame(
        [{"rank": 0, "device": 0, "sm_clock_mhz": 1500, **row} for row in rows],
        infer_schema_length=None,
    )
    schema = capture.samples.schema
    frame = frame.select(
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )
    return replace(capture, samples=frame)


def window(end_ms: int, tensor: float | None, dram: float | None = 10.0) -> dict[str, Any]:
    return {
        "time_ns": end_ms * MS,
        "tensor_active_percent": tensor,
        "dram_active_percent": dram,
    }


NEEDED = 2 * N**3 / (PEAK_FLOPS * 1500 / PEAK_CLOCK_MHZ) / (STEP_NS / 1e9)
MFU = 2 * N**3 / PEAK_FLOPS / (STEP_NS / 1e9)


def test_the_mean_of_whole_windows_beside_what_the_products_need(build: CaptureBuilder) -> None:
    percent = NEEDED * 100
    found = sampled(
        products(build, timed=140),
        [
            # Begins before the steps; nobody knows when.
            window(50, 1.0),
            # May hold something from before them: counters are read late.
            window(200, 70.0),
            window(300, percent + 5, 29.0),
            window(500, percent - 2.5, 30.5),
            # Too short for the counters' refresh.
            window(520, 3.0),
            # Ends after the timed steps.
            window(720, 3.0),
        ],
    )
    assert found is not None
    assert (found.windows, found.window_ns) == (2, 150 * MS)
    assert found.covered_fraction == pytest.approx(300 / 700)
    # One window is twice as long as the other.
    assert found.tensor_active == pytest.approx(NEEDED, rel=1e-5)
    assert found.dram_active == pytest.approx(0.3)
    assert found.modelled_tensor == pytest.approx(NEEDED)
    assert found.clock_mhz == 1500
    assert found.dram_bytes == pytest.approx(0.3 * PEAK_BYTES * STEP_NS / 1e9)
    assert found.modelled_bytes == 3 * 2 * N**2
    # Half of their difference is the standard error of two values.
    assert found.dram_uncertainty == pytest.approx(2 * 0.75 / 30, rel=1e-5)
    assert "read again" in found.dram_reason


def test_dram_bytes_that_windows_do_not_agree_on_have_no_reason(build: CaptureBuilder) -> None:
    rows = [window(200, 50.0), window(350, 50.0, 1.0), window(500, 50.0, 4.5)]
    found = sampled(products(build), rows)
    assert found is not None
    assert found.dram_bytes is not None
    assert found.modelled_bytes is not None
    assert found.dram_bytes > 1.1 * found.modelled_bytes
    assert found.dram_reason == ""


def test_windows_are_a_time_line_with_the_steps_that_they_can_hold(build: CaptureBuilder) -> None:
    rows = [
        {"time_ns": (start + 15) * MS, "window_start_ns": start * MS, "window_end_ns": end * MS}
        | {"tensor_active_percent": 10.0 * number, "sm_active_percent": 99.0}
        | {"power_milliwatts": 100_000 * number, "nvlink_tx_bytes_per_s": 5 * 10**9}
        for number, (start, end) in enumerate([(200, 300), (300, 450)], start=1)
    ]
    found = sampled(products(build), rows)
    assert found is not None
    first, second = found.time_line
    assert (first.start_ns, first.end_ns, second.end_ns) == (200 * MS, 300 * MS, 450 * MS)
    # From 200 ms before it begins to its end, steps of 5 ms.
    assert (first.first_step, first.last_step) == (0, 59)
    assert (second.first_step, second.last_step) == (20, 89)
    assert [each.tensor_active for each in found.time_line] == pytest.approx([0.1, 0.2])
    assert [each.power_watts for each in found.time_line] == [100, 200]
    assert (first.sm_active, first.nvlink_tx_bytes_per_s) == (pytest.approx(0.99), 5e9)
    assert (first.dram_active, first.pcie_rx_bytes_per_s) == (None, None)
    assert found.sm_active == pytest.approx(0.99)


def reconciled(found: Activity | None) -> Reconciliation:
    assert found is not None
    assert found.reconciled is not None
    return found.reconciled


def test_ofu_is_activity_at_the_clock_that_ran_and_its_parts_add_up(build: CaptureBuilder) -> None:
    found = reconciled(sampled(products(build), [window(200, 0.0), window(350, 90.0)]))
    assert found.ofu == pytest.approx(0.9 * 1500 / PEAK_CLOCK_MHZ)
    assert found.mfu == pytest.approx(MFU)
    parts = sum(each.fraction for each in found.differences)
    assert found.mfu + parts + found.unexplained == pytest.approx(found.ofu)


@pytest.mark.parametrize(
    ("kernel", "factor", "reasons"),
    [
        # What a kernel's name tells comes first: 8192 in tiles of 320 are 26, in clusters of two
        # of 128 no more; what is left is bounded by what an H200 counts of whole tiles.
        (
            "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT",
            1.11,
            [
                ("tiles that reach beyond their matrices (320x128 in clusters of 1x2)", 1 / 64),
                ("not at their full rate", 0.11 - 1 / 64),
            ],
        ),
        (
            "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1",
            2.2,
            [("kernels for sm75 (100% of the products' time)", 1.2)],
        ),
        ("k", 1.15, [("not at their full rate", 0.15)]),
        ("k", 1.0, []),
        ("k", 0.995, []),
    ],
)
def test_a_difference_has_its_reasons(
    build: CaptureBuilder, kernel: str, factor: float, reasons: list[tuple[str, float]]
) -> None:
    capture = products(build, kernel=kernel)
    found = reconciled(sampled(capture, [window(200, 0.0), window(350, 100 * NEEDED * factor)]))
    assert len(found.differences) == len(reasons)
    for each, (reason, extra) in zip(found.differences, reasons, strict=True):
        assert reason in each.reason
        assert each.fraction == pytest.approx(extra * MFU, abs=1e-4)
    assert not is_unexplained(found)


@pytest.mark.parametrize(
    ("factor", "said"), [(1.5, "the model counts too little"), (0.5, "products that do not run")]
)
def test_a_difference_that_nothing_accounts_for_is_an_alarm(
    build: CaptureBuilder, factor: float, said: str
) -> None:
    capture = with_samples(products(build), [window(200, 0.0), window(350, 100 * NEEDED * factor)])
    analysis = analyze(capture)
    found = reconciled(analysis.activity)
    bounded = 0.2 if factor > 1 else 0.0
    assert found.unexplained == pytest.approx((factor - 1 - bounded) * MFU, abs=1e-4)
    (alarm,) = [each for each in analysis.warnings if "OFU" in each]
    assert said in alarm
    assert alarm[1:] in " ".join(render_markdown(analysis).replace("\\", "").split())


def test_tensor_cores_that_work_without_any_product_are_an_alarm(build: CaptureBuilder) -> None:
    for number in range(20):
        start = number * 50 * MS
        build.step("timed", start, start + 50 * MS, device_ns=50 * MS, device_start_ns=start)
    start = 2000 * MS
    build.step("profiled", start, start + 50 * MS)
    build.op("aten::relu", start, start + 9, dims="[[64]]", types='["float"]')
    build.kernel(start + 1, start + 10, start + 40 * MS)
    capture = build.build(CAPABLE)
    busy = analyze(with_samples(capture, [window(200, 0.0), window(350, 60.0)]))
    (alarm,) = [each for each in busy.warnings if "tensor cores" in each]
    assert "60.0% of the cycles and no product" in alarm
    idle = analyze(with_samples(capture, [window(200, 0.0), window(350, 0.1)]))
    assert not [each for each in idle.warnings if "tensor cores" in each]


def test_a_difference_within_the_uncertainty_is_none(build: CaptureBuilder) -> None:
    rows = [window(200, 0.0), window(350, 100 * NEEDED - 3), window(500, 100 * NEEDED + 5)]
    capture = with_samples(products(build), rows)
    analysis = analyze(capture)
    found = reconciled(analysis.activity)
    # Two standard errors of two values that are 8 points of the cycles apart.
    assert found.uncertainty == pytest.approx(2 * 0.08 / 2 * 1500 / PEAK_CLOCK_MHZ, rel=0.01)
    assert not differs(found)
    assert not [each for each in analysis.warnings if "OFU" in each]
    assert "within" in render_markdown(analysis)


def test_a_clock_that_changes_makes_ofu_less_certain(build: CaptureBuilder) -> None:
    rows = [window(200, 0.0), window(350, 90.0), window(500, 90.0)]
    for row, clock in zip(rows, (1500, 1400, 1600), strict=True):
        row["sm_clock_mhz"] = clock
    found = reconciled(sampled(products(build), rows))
    assert found.clock_mhz == 1500
    spread = (2 / 3) ** 0.5 * 100 / 3**0.5 / 1500
    assert found.uncertainty == pytest.approx(2 * spread * found.ofu, rel=0.01)


def test_one_window_of_long_steps_with_short_bursts_is_no_alarm(build: CaptureBuilder) -> None:
    """A window of 150 ms in steps of 400 ms can miss the burst that each has."""
    for number in range(3):
        start = number * 400 * MS
        build.step("timed", start, start + 400 * MS, device_ns=400 * MS, device_start_ns=start)
    for number in range(3):
        start = 4000 * MS + number * 400 * MS
        build.step("profiled", start, start + 400 * MS)
        for call in range(40):
            build.mm(start + 10 * call, start + 10 * call + 9, N, N, N)
            done = start + 2 * (call + 1) * MS
            build.kernel(start + 10 * call + 1, done - 2 * MS, done)
    capture = build.build(CAPABLE)
    analysis = analyze(with_samples(capture, [window(500, 1.0), window(650, 2.0)]))
    found = reconciled(analysis.activity)
    share = 40 * 2 * N**3 / PEAK_FLOPS / 0.4
    assert found.mfu == pytest.approx(share)
    # All that a window can miss of the burst, by what the models say of it.
    share_of_time = share * PEAK_CLOCK_MHZ / 1500
    missed = share * (1 - share_of_time) * 400 / 150
    assert found.uncertainty == pytest.approx(missed)
    assert not is_unexplained(found)
    many = [window(at, 100 * share_of_time) for at in range(200, 1200, 150)]
    assert reconciled(sampled(capture, many)).uncertainty < missed / 4


def test_uneven_steps_make_a_window_less_certain(build: CaptureBuilder) -> None:
    """Steps of a loader that is late, as an H200 had them; 2.3 of them fit into a window."""
    start = 0
    for length in (18, 47, 86, 41, 90, 54, 27, 28, 38, 7):
        times = {"device_ns": length * MS, "device_start_ns": start}
        build.step("timed", start, start + length * MS, **times)
        start += length * MS
    capture = products(build, timed=0)
    found = reconciled(sampled(capture, [window(300, 1.0), window(400, 1.8)]))
    mean, deviation = 43.6, 25.55
    share = 2 * N**3 / PEAK_FLOPS / (mean / 1e3)
    differing = 2 * share * deviation / mean * (mean / 100) ** 0.5
    # The window's ends cut steps besides.
    assert differing < found.uncertainty < 1.5 * differing


def test_work_without_a_model_is_the_reason_where_there_is_some(build: CaptureBuilder) -> None:
    def mine(start: int) -> None:
        build.op("mine::product", start + 200, start + 300)
        build.kernel(start + 210, start + 20, start + STEP_NS // 2, name="mine", stream=8)

    capture = products(build, beside=mine)
    found = reconciled(sampled(capture, [window(200, 0.0), window(350, 99.0)]))
    unmodelled, _ = found.differences
    assert "33% of device time without a FLOP model" in unmodelled.reason
    # No more than all of that time.
    assert unmodelled.fraction == pytest.approx(1 / 3, abs=1e-4)


def test_other_processes_on_the_device_are_named(build: CaptureBuilder) -> None:
    health = DeviceHealth(index=0, active_processes=3)
    rows = [window(200, 0.0), window(350, 99.0)]
    found = reconciled(sampled(products(build, device_health=(health,)), rows))
    assert found.differences[-1].reason.startswith("2 other processes work on this device")
    assert found.unexplained == pytest.approx(0)


def test_recomputation_is_told_apart_from_the_model(build: CaptureBuilder) -> None:
    """Each profiled step does half of its product again, in a checkpoint's second forward."""

    def again(start: int) -> None:
        build.mm(start + 200, start + 300, N // 2, N, N, recompute=True)
        build.kernel(start + 210, start + STEP_NS // 2, start + STEP_NS)

    capture = products(build, beside=again)
    found = reconciled(sampled(capture, [window(200, 0.0), window(350, 150 * NEEDED)]))
    assert found.mfu == pytest.approx(MFU)
    (again,) = found.differences
    assert again.reason == "recomputation of checkpointed activations"
    assert again.fraction == pytest.approx(MFU / 2)


def test_products_without_tensor_cores_leave_them_idle(build: CaptureBuilder) -> None:
    kernel = "void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>"
    found = reconciled(
        sampled(products(build, kernel=kernel), [window(200, 0.0), window(350, 0.0)])
    )
    (idle,) = found.differences
    assert idle.reason == "products in kernels without tensor cores"
    assert idle.fraction == pytest.approx(-MFU)


def test_steps_that_are_too_short_for_a_window_say_how_many_it_needs(build: CaptureBuilder) -> None:
    capture = products(build, timed=10)
    # Once the steps are over, counters are read once a second.
    found = sampled(capture, [window(20, 5.0), window(120, 5.0), window(1120, 5.0)])
    assert found is not None
    assert (found.windows, found.tensor_active) == (0, None)
    # A window may begin right after a reading that is 200 ms late.
    assert found.steps_needed == (2 * 100 + 200) * MS // STEP_NS


def test_without_timed_steps_there_is_no_activity(build: CaptureBuilder) -> None:
    assert sampled(products(build, timed=0), [window(200, 5.0), window(350, 5.0)]) is None


def test_a_device_without_counters_has_no_activity(build: CaptureBuilder) -> None:
    assert sampled(products(build), [window(200, None, None), window(350, None, None)]) is None


def test_a_rate_that_is_unknown_stays_unknown(build: CaptureBuilder) -> None:
    found = sampled(products(build), [window(200, None), window(350, None, 20.0)])
    assert found is not None
    assert found.tensor_active is None
    assert found.reconciled is None
    assert found.dram_active == pytest.approx(0.2)


def test_what_several_devices_did_is_not_compared_with_the_counters_of_one(
    build: CaptureBuilder,
) -> None:
    for number in range(3):
        start = 2000 * MS + number * STEP_NS
        build.mm(start + 200, start + 300, N, N, N)
        build.kernel(start + 210, start + 20, start + STEP_NS, device=1)
    found = sampled(products(build), [window(200, 0.0), window(350, 50.0, 20.0)])
    assert found is not None
    assert (found.tensor_active, found.dram_active) == (0.5, pytest.approx(0.2))
    assert (found.modelled_tensor, found.modelled_tensor_full) == (None, None)
    assert (found.modelled_bytes, found.reconciled, found.dram_reason) == (None, None, "")


def test_steps_that_did_other_work_than_the_timed_ones_are_not_compared(
    build: CaptureBuilder,
) -> None:
    """Every profiled step has ten times the work that the timed ones had time for."""
    for number in range(3):
        start = 2000 * MS + number * STEP_NS
        for other in range(9):
            build.mm(start + 200 + other, start + 300, N, N, N)
            build.kernel(start + 210, start + 20 * MS * (other + 1), start + 20 * MS * (other + 2))
    found = sampled(products(build), [window(200, 0.0), window(350, 50.0)])
    assert found is not None
    assert found.tensor_active == 0.5
    assert found.modelled_tensor is None


def test_a_clock_that_nobody_saw_is_said_to_be_the_datasheets(build: CaptureBuilder) -> None:
    capture = products(build)
    rows = [{**each, "sm_clock_mhz": None} for each in (window(200, 0.0), window(350, 90.0))]
    found = sampled(capture, rows)
    assert found is not None
    assert found.clock_mhz is None
    assert found.modelled_tensor == pytest.approx(2 * N**3 / PEAK_FLOPS / (STEP_NS / 1e9))


def test_the_report_says_both_sides_with_windows_and_coverage(build: CaptureBuilder) -> None:
    def mine(start: int) -> None:
        build.op("mine::product", start + 200, start + 300)
        build.kernel(start + 210, start + 20, start + STEP_NS // 2, name="mine", stream=8)

    capture = products(build, beside=mine)
    rows = [window(200, 0.0), window(350, 34.0, 12.0)]
    frame = pl.DataFrame([{"rank": 0, "device": 0, **row} for row in rows])
    samples = pl.concat([capture.samples, frame], how="diagonal_relaxed")
    page = render_markdown(analyze(replace(capture, samples=samples.cast(capture.samples.schema))))
    assert "## Activity counted by the device" in page
    assert "of the whole device: 1 window of 150 ms, 30.0% of the timed steps" in page
    assert "without a FLOP model" in page
    assert "at the datasheet's clock" in page
