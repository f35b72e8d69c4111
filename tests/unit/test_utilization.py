"""MFU: FLOPs over time over peak, recomputed by hand."""

from typing import Any

import pytest

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import Utilization
from gpuprof.roofline.analyze import analyze

FLOPS = 2 * 64 * 32 * 16


def steps(build: Any, *timed_ns: int, profiled: int = 1) -> None:
    """Timed steps of these device times, then profiled ones of 1000 ns from time 0."""
    for index, length in enumerate(timed_ns):
        build.step("timed", -10_000 + index, -9_999 + index, device_ns=length)
    for index in range(profiled):
        build.step("profiled", 1000 * index, 1000 * (index + 1))


def use_of(build: Any, device: Any = ...) -> Utilization | None:
    return analyze(build.build() if device is ... else build.build(device)).utilization


def test_mfu_is_flops_over_the_median_timed_step_over_the_peak(build: Any) -> None:
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


def test_an_operator_with_several_kernels_counts_once(build: Any) -> None:
    steps(build, 5000)
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.kernel(20, 1040, 1050)
    use = use_of(build)
    assert use is not None
    assert use.model_flops == FLOPS


def test_causal_attention_is_counted_in_full_and_as_masked(build: Any) -> None:
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


def test_the_peak_is_that_of_the_precision_with_most_flops(build: Any) -> None:
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


def test_more_than_the_peak_is_not_clipped(build: Any) -> None:
    steps(build, 10)
    build.mm(0, 50, 4096, 4096, 4096)
    build.kernel(10, 1000, 1040)
    use = use_of(build)
    assert use is not None
    assert use.mfu == pytest.approx(2 * 4096**3 / 10e-9 / 989.4e12)


def test_an_unknown_device_has_rates_and_no_mfu(build: Any) -> None:
    steps(build, 5000)
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    use = use_of(build, Device(index=0, kind="cuda", name="NVIDIA Z9000"))
    assert use is not None
    assert use.flops_per_s == FLOPS / 5000e-9
    assert (use.peak, use.mfu, use.mfu_causal) == (None, None, None)


def test_without_timed_steps_there_is_no_utilization(build: Any) -> None:
    steps(build)
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    assert use_of(build) is None


def test_without_matmuls_there_is_no_utilization(build: Any) -> None:
    steps(build, 5000)
    build.op("aten::relu", 0, 50, dims="[[64, 32]]", types='["float"]')
    build.kernel(10, 1000, 1040)
    assert use_of(build) is None
