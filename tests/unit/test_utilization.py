"""MFU, HFU and MBU: counts over time over peak, recomputed by hand."""

import json
from typing import Any

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.manifest import Calibration, Device, MeasuredCeiling
from gpuprof.roofline.analysis import Utilization
from gpuprof.roofline.analyze import analyze

FLOPS = 2 * 64 * 32 * 16


def steps(build: CaptureBuilder, *timed_ns: int, profiled: int = 1) -> None:
    """Timed steps of these device times, then profiled ones of 1000 ns from time 0."""
    for index, length in enumerate(timed_ns):
        build.step("timed", -10_000 + index, -9_999 + index, device_ns=length)
    for index in range(profiled):
        build.step("profiled", 1000 * index, 1000 * (index + 1))


def use_of(build: CaptureBuilder, device: Any = ...) -> Utilization | None:
    return analyze(build.build() if device is ... else build.build(device)).utilization


def test_mfu_is_flops_over_the_median_timed_step_over_the_peak(build: CaptureBuilder) -> None:
    steps(build, 5000, 4000, 9000, profiled=2)
    for step in (0, 1000):
        for start in (step, step + 100, step + 200):
            build.mm(start, start + 50)
            build.kernel(start + 10, 10_000 + start, 10_040 + start)
    use = use_of(build)
    assert use is not None
    assert (use.model_flops, use.step_ns, use.precision) == (3 * FLOPS, 5000, "bf16")
    assert use.flops_per_s == 3 * FLOPS / 5000e-9
    assert use.peak is not None
    assert (use.peak.rate, use.peak.source) == (989.4e12, "datasheet")
    assert use.mfu == pytest.approx(3 * FLOPS / 5000e-9 / 989.4e12, rel=1e-12)
    assert use.mfu == use.mfu_causal


def test_an_operator_with_several_kernels_counts_once(build: CaptureBuilder) -> None:
    steps(build, 5000)
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.kernel(20, 1040, 1050)
    use = use_of(build)
    assert use is not None
    assert use.model_flops == FLOPS


def test_causal_attention_is_counted_in_full_and_as_masked(build: CaptureBuilder) -> None:
    steps(build, 5000)
    shape = [2, 4, 128, 64]
    build.op(
        "aten::_scaled_dot_product_flash_attention",
        0,
        50,
        dims=f"[{shape}, {shape}, {shape}, [], [], [], []]",
        types=str(["c10::BFloat16"] * 3 + ["Scalar"] * 4).replace("'", '"'),
        concrete_inputs='["", "", "", "0.", "True", "False", ""]',
    )
    build.kernel(10, 1000, 1040, "flash_fwd_kernel")
    use = use_of(build)
    assert use is not None
    assert use.model_flops == 4 * 2 * 4 * 128 * 128 * 64
    assert use.model_flops_causal == 4 * 2 * 4 * (128 * 129 // 2) * 64
    assert use.mfu is not None
    assert use.mfu_causal == pytest.approx(use.mfu * 129 / 256)


def test_the_peak_is_that_of_the_precision_with_most_flops(build: CaptureBuilder) -> None:
    steps(build, 5000)
    build.mm(0, 50, 640)
    build.kernel(10, 1000, 1040)
    build.op("aten::mm", 100, 150, dims="[[64, 32], [32, 16]]", types='["float", "float"]')
    build.kernel(110, 1100, 1140)
    use = use_of(build)
    assert use is not None
    assert use.model_flops == 11 * FLOPS
    assert use.peak is not None
    assert (use.precision, use.peak.precision) == ("bf16", "bf16")


def test_more_than_the_peak_is_not_clipped(build: CaptureBuilder) -> None:
    steps(build, 10)
    build.mm(0, 50, 4096, 4096, 4096)
    build.kernel(10, 1000, 1008)
    use = use_of(build)
    assert use is not None
    assert use.mfu == pytest.approx(2 * 4096**3 / 10e-9 / 989.4e12)


def test_an_unknown_device_has_rates_and_no_mfu(build: CaptureBuilder) -> None:
    steps(build, 5000)
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    use = use_of(build, Device(index=0, kind="cuda", name="NVIDIA Z9000"))
    assert use is not None
    assert use.flops_per_s == FLOPS / 5000e-9
    assert (use.peak, use.mfu, use.mfu_causal) == (None, None, None)


def test_without_timed_steps_the_profiled_ones_are_the_step(build: CaptureBuilder) -> None:
    steps(build, profiled=2)
    for step in (0, 1000):
        build.mm(step, step + 50)
        build.kernel(step + 10, step + 100, step + 900)
    use = use_of(build)
    assert use is not None
    assert (use.basis, use.step_ns, use.devices) == ("host range", 1000, 1)
    assert use.mfu == pytest.approx(FLOPS / 1000e-9 / 989.4e12)


def test_without_any_step_the_trace_is_the_step(build: CaptureBuilder) -> None:
    for start in (0, 5000):
        build.mm(start, start + 50)
        build.kernel(start + 10, start + 100, start + 900)
    use = use_of(build)
    assert use is not None
    # From 100 to 5900, with the work of both products.
    assert (use.basis, use.step_ns) == ("whole trace", 5800)
    assert use.mfu == pytest.approx(2 * FLOPS / 5800e-9 / 989.4e12)


def test_several_gpus_of_a_process_have_the_peaks_of_all(build: CaptureBuilder) -> None:
    steps(build)
    for device in range(4):
        build.mm(100 * device, 100 * device + 50)
        build.kernel(100 * device + 10, 100 * device + 200, 100 * device + 260, device=device)
    analysis = analyze(build.build())
    use = analysis.utilization
    assert use is not None
    assert use.devices == 4
    assert use.mfu == pytest.approx(4 * FLOPS / 1000e-9 / (4 * 989.4e12))
    assert [one.device for one in analysis.devices] == [0, 1, 2, 3]


def test_without_matmuls_there_is_no_utilization(build: CaptureBuilder) -> None:
    steps(build, 5000)
    build.op("aten::relu", 0, 50, dims="[[64, 32]]", types='["float"]')
    build.kernel(10, 1000, 1040)
    assert use_of(build) is None


FLASH = "aten::_scaled_dot_product_flash_attention"
QUERIES = [2, 4, 128, 64]


def attention(build: CaptureBuilder, *, causal: bool, backward: bool = False) -> None:
    """One flash attention over 2 sequences, 4 heads, 128 positions, head size 64."""
    tensors = 6 if backward else 3
    dims = [QUERIES] * tensors
    if backward:
        # The log-sum-exp stands after the output.
        dims[5] = QUERIES[:3]
        dims += [[2], [2], [], [], [], []]
        types = ["c10::BFloat16"] * 5 + ["float", "int", "int"] + ["Scalar"] * 4
        concrete = [""] * 8 + ["128", "128", "0.", str(causal)]
    else:
        dims += [[], [], [], []]
        types = ["c10::BFloat16"] * 3 + ["Scalar"] * 4
        concrete = ["", "", "", "0.", str(causal), "False", ""]
    build.op(
        f"{FLASH}_backward" if backward else FLASH,
        0,
        50,
        dims=str(dims),
        types=json.dumps(types),
        concrete_inputs=json.dumps(concrete),
    )
    build.kernel(10, 1000, 1040, "flash")


@pytest.mark.parametrize("causal", [False, True])
def test_scores_that_a_backward_computes_again_are_in_hfu_and_not_in_mfu(
    build: CaptureBuilder, causal: bool
) -> None:
    steps(build, 5000)
    attention(build, causal=causal, backward=True)
    use = use_of(build)
    assert use is not None
    product, kept = 2 * 2 * 4 * 128 * 128 * 64, 2 * 2 * 4 * (128 * 129 // 2) * 64
    assert (use.model_flops, use.hardware_flops) == (4 * product, 5 * product)
    pairs = kept if causal else product
    assert (use.model_flops_causal, use.hardware_flops_causal) == (4 * pairs, 5 * pairs)
    assert use.mfu is not None
    assert use.hfu == pytest.approx(use.mfu * 5 / 4)
    assert use.hfu_causal == pytest.approx(5 * pairs / 5000e-9 / 989.4e12)
    assert use.checkpointed_flops == 0


def test_what_checkpointing_repeats_is_in_hfu_and_not_in_mfu(build: CaptureBuilder) -> None:
    steps(build, 5000)
    for start, repeated in ((0, False), (100, True)):
        build.mm(start, start + 50, recompute=repeated)
        build.kernel(start + 10, 1000 + start, 1040 + start)
    # So that the profiler's tree knows a backward pass.
    build.op("MmBackward0", 200, 250)
    use = use_of(build)
    assert use is not None
    assert (use.model_flops, use.hardware_flops, use.checkpointed_flops) == (
        FLOPS,
        2 * FLOPS,
        FLOPS,
    )


def test_an_fp8_run_is_held_against_both_peaks(build: CaptureBuilder) -> None:
    steps(build, 5000)
    dims = "[[64, 32], [32, 16], [], [], [], [], []]"
    types = ["c10::Float8_e4m3fn"] * 2 + ["float", "float", "", "", "Scalar"]
    build.op("aten::_scaled_mm", 0, 50, dims=dims, types=json.dumps(types))
    build.kernel(10, 1000, 1040)
    use = use_of(build)
    assert use is not None
    assert use.peak is not None
    assert use.other_peak is not None
    assert (use.peak.precision, use.other_peak.precision) == ("fp8", "bf16")
    assert use.mfu == pytest.approx(FLOPS / 5000e-9 / 1978.9e12, rel=1e-3)
    assert use.mfu_other_peak == pytest.approx(FLOPS / 5000e-9 / 989.4e12)


def test_a_bf16_run_with_some_fp8_names_the_fp8_peak_too(build: CaptureBuilder) -> None:
    steps(build, 5000)
    build.mm(0, 50, 640)
    build.kernel(10, 1000, 1040)
    types = ["c10::Float8_e4m3fn"] * 2 + ["float", "float", "", "", "Scalar"]
    dims = "[[64, 32], [32, 16], [], [], [], [], []]"
    build.op("aten::_scaled_mm", 100, 150, dims=dims, types=json.dumps(types))
    build.kernel(110, 1100, 1140)
    use = use_of(build)
    assert use is not None
    assert use.other_peak is not None
    assert (use.precision, use.other_peak.precision) == ("bf16", "fp8")


def test_a_bf16_run_has_one_peak(build: CaptureBuilder) -> None:
    steps(build, 5000)
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    use = use_of(build)
    assert use is not None
    assert (use.other_peak, use.mfu_other_peak) == (None, None)


def test_mbu_is_weights_keys_and_values_over_time_over_bandwidth(build: CaptureBuilder) -> None:
    steps(build, 5000)
    attention(build, causal=False)
    build.mm(100, 150)
    build.kernel(110, 1100, 1140)
    use = use_of(build)
    assert use is not None
    assert use.weight_bytes == 2 * 32 * 16
    assert use.key_value_bytes == 2 * 2 * (2 * 4 * 128 * 64)
    assert use.memory_peak is not None
    assert use.mbu == pytest.approx(
        (use.weight_bytes + use.key_value_bytes) / 5000e-9 / use.memory_peak.rate
    )


@pytest.mark.parametrize(("capacity_bytes", "rate"), [(2 * 32 * 16, 2e11), (2 * 32 * 16 - 1, 4e10)])
def test_mbu_of_a_model_that_fits_in_a_cache_is_of_that_cache(
    build: CaptureBuilder, capacity_bytes: int, rate: float
) -> None:
    device = Device(index=0, kind="cpu", name="a CPU")
    ceilings = tuple(
        MeasuredCeiling(
            kind="memory",
            name=level,
            level=level,
            rate=bandwidth,
            spread=0.0,
            repeats=5,
            capacity_bytes=capacity,
        )
        for level, bandwidth, capacity in (("L2", 2e11, capacity_bytes), ("DRAM", 4e10, None))
    )
    calibration = Calibration(device=device, torch="2", threads=2, measured_ns=0, ceilings=ceilings)
    steps(build, 5000)
    op_id = build.mm(100, 150)
    build.kernel(100, 100, 150, "aten::mm", kind="op", op_id=op_id)
    use = analyze(build.build(device, calibration=calibration)).utilization
    assert use is not None
    assert use.memory_peak is not None
    assert use.memory_peak.rate == rate
    assert use.mbu == pytest.approx(2 * 32 * 16 / (use.step_ns / 1e9) / rate)


def test_training_has_no_mbu(build: CaptureBuilder) -> None:
    steps(build, 5000)
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    node = build.op("autograd::engine::evaluate_function: MmBackward0", 100, 190)
    build.mm(110, 150, parent_id=node)
    build.kernel(120, 1100, 1140)
    use = use_of(build)
    assert use is not None
    assert (use.weight_bytes, use.key_value_bytes, use.mbu) == (None, None, None)


def test_a_product_without_shapes_leaves_mbu_unknown(build: CaptureBuilder) -> None:
    steps(build, 5000)
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.op("aten::mm", 100, 150)
    build.kernel(110, 1100, 1140)
    use = use_of(build)
    assert use is not None
    assert (use.weight_bytes, use.key_value_bytes, use.mbu) == (None, None, None)
