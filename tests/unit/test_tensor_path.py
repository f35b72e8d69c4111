"""Products without tensor cores where the device has them: only where a kernel's name says so."""

import pytest
from capture_builder import H100, CaptureBuilder
from msgspec import structs

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.analyze import analyze

V100 = structs.replace(
    H100, name="Tesla V100-SXM2-16GB", total_memory_bytes=16 * 2**30, multiprocessors=80
)
SIZE = 4096
FLOPS = 2 * SIZE**3
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x5_nn_align1>(Params)"


def product(
    kernel: str,
    dtype: str = "float",
    *,
    device_ns: int = 2_600_000,
    device: Device = H100,
    inner: int = SIZE,
    strides: str | None = None,
) -> tuple[RooflinePoint, RooflinePoint]:
    """The rows of the kernel and of the operator of one square product."""
    build = CaptureBuilder()
    more = {} if strides is None else {"input_strides": strides}
    build.op(
        "aten::mm",
        0,
        50,
        dims=f"[[{SIZE}, {inner}], [{inner}, {SIZE}]]",
        types=f'["{dtype}", "{dtype}"]',
        **more,
    )
    build.kernel(10, 1000, 1000 + device_ns, kernel, grid_x=1024, grid_y=1, grid_z=1)
    analysis = analyze(build.build(device))
    (kernel_row,), (op,) = analysis.kernels, analysis.ops
    return kernel_row, op


def test_a_float32_product_off_the_tensor_cores_gains_what_tf32_would_save() -> None:
    for row in product(SIMT):
        assert row.bottleneck.kind == "no-tensor"
        assert "float32 operands, which TF32 would multiply there" in row.bottleneck.evidence
        # Its own roof stays that of fp32; the gain is at the same share of the other one.
        assert row.roof == "fp32 vector (datasheet, dense)"
        assert row.bottleneck.gain_ns == pytest.approx(2_600_000 * (1 - 67 / 494.7), rel=0.01)


def test_a_16_bit_product_off_the_tensor_cores_is_far_below_their_roof() -> None:
    kernel, op = product("cutlass_80_simt_sgemm_bf16_128x128", "c10::BFloat16")
    for row in (kernel, op):
        assert row.bottleneck.kind == "no-tensor"
        assert row.roof == "bf16 tensor (datasheet, dense)"
        assert row.roof_ns is not None
        assert row.bottleneck.gain_ns == pytest.approx(2_600_000 - row.roof_ns, abs=2)


@pytest.mark.parametrize(
    ("inner", "strides", "why"),
    [
        (SIZE - 1, None, "no multiple of 16 bytes"),
        (SIZE, f"[[{2 * SIZE}, 2], [{SIZE}, 1]]", "an operand is not contiguous"),
        (SIZE, f"[[{SIZE}, 1], [1, {SIZE}]]", "the kernel's name says so"),
    ],
)
def test_the_evidence_says_why(inner: int, strides: str | None, why: str) -> None:
    _, op = product("simt_hgemm_128x128_simt_", "c10::Half", inner=inner, strides=strides)
    assert why in op.bottleneck.evidence


@pytest.mark.parametrize(
    ("kernel", "dtype", "device"),
    [
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4", "float", H100),
        ("triton_mm_0", "float", H100),
        # No TF32 there.
        ("volta_sgemm_128x128_nn", "float", V100),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "c10::BFloat16", H100),
        ("some_dgemm", "double", H100),
    ],
)
def test_products_on_tensor_cores_or_without_any_are_another_class(
    kernel: str, dtype: str, device: Device
) -> None:
    for row in product(kernel, dtype, device=device, device_ns=10_000_000):
        assert row.bottleneck.kind != "no-tensor"


def test_a_product_that_memory_binds_gains_nothing_there() -> None:
    build = CaptureBuilder()
    dims, types = f"[[1, {SIZE}], [{SIZE}, {SIZE}]]", '["float", "float"]'
    build.op("aten::mm", 0, 50, dims=dims, types=types)
    build.kernel(10, 1000, 31_000, "ampere_sgemm_32x128_tn")
    (op,) = analyze(build.build()).ops
    assert op.bottleneck.kind == "memory"
