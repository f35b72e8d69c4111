"""Which units a product of float32 operands ran on: kernel's name, own argument, then settings."""

import pytest
from capture_builder import H100, CaptureBuilder
from msgspec import structs

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.kernel_names.product_arithmetic import product_arithmetic
from gpuprof.roofline.work.math_mode import has_tf32

A100 = Device(index=0, kind="cuda", name="NVIDIA A100-SXM4-80GB", multiprocessors=108)
V100 = Device(
    index=0,
    kind="cuda",
    name="Tesla V100-SXM2-16GB",
    total_memory_bytes=16 * 2**30,
    multiprocessors=80,
)
SIZE = 4096
FLOPS = 2 * SIZE**3
TF32_GEMM = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x128_32x3_tn_align4>(Params)"
FLOAT = '["float", "float"]'


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        (TF32_GEMM, "tf32"),
        ("cutlass_tensorop_s1688tf32gemm_256x128_16x3_nn_align4", "tf32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x64_stage3", "tf32"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1", "tf32"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128", "tf32"),
        ("cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4", "tf32"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)", "tf32"),
        ("nvjet_sm100_sss_128x64_64x8_2x1_h_bz_TNN", "tf32"),
        ("cutlass_tensorop_s16816bf16gemm_128x128_32x3_nn_align8", "bf16"),
        ("cutlass_tensorop_s1688f16gemm_256x64_16x4_nn_align4", "fp16"),
        ("ampere_sgemm_128x64_nn", "fp32"),
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", "fp32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_ffma_aligna4", "fp32"),
        ("cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1", "fp32"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(Params)", "fp32"),
        ("void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024>", "fp32"),
        ("triton_mm_0", None),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>", None),
        ("void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>", None),
    ],
)
def test_a_kernels_name_tells_its_arithmetic(name: str, precision: str | None) -> None:
    found = product_arithmetic([name])
    assert (found and found.float32) == precision


def product(build: CaptureBuilder, kernel: str, device_ns: int, types: str = FLOAT) -> None:
    dims = f"[[{SIZE}, {SIZE}], [{SIZE}, {SIZE}]]"
    build.op("aten::mm", 0, 50, dims=dims, types=types)
    build.kernel(10, 1000, 1000 + device_ns, kernel)


def both_rows(analysis: Analysis) -> tuple[RooflinePoint, RooflinePoint]:
    (kernel,), (op,) = analysis.kernels, analysis.ops
    return kernel, op


def test_a_tf32_product_of_an_imported_trace_stands_under_the_tensor_roof() -> None:
    """At 4 times the fp32 vector roof, and below 100 % of it, where the same error is silent."""
    for device_ns in (1_800_000, 9_000_000):
        build = CaptureBuilder()
        product(build, TF32_GEMM, device_ns)
        for row in both_rows(analyze(build.build(A100))):
            assert row.roof == "tf32 tensor (datasheet, dense)"
            assert row.roof_fraction == pytest.approx(FLOPS / 156e12 * 1e9 / device_ns)
            assert not row.assumptions


def test_a_kernel_without_tensor_cores_stands_under_the_vector_roof_whatever_was_allowed(
    build: CaptureBuilder,
) -> None:
    product(build, "ampere_sgemm_128x64_nn", 9_000_000)
    capture = build.build(A100)
    (info,) = capture.processes
    allowed = structs.replace(info.fingerprint, allow_tf32_matmul=True, allow_tf32_cudnn=True)
    analysis = analyze(
        type(capture)(
            capture.manifest, (structs.replace(info, fingerprint=allowed),), **capture.tables()
        )
    )
    for row in both_rows(analysis):
        assert row.roof == "fp32 vector (datasheet, dense)"


def test_calls_of_one_shape_on_different_units_are_rows_of_their_own(
    build: CaptureBuilder,
) -> None:
    for start, kernel in ((0, TF32_GEMM), (100, "ampere_sgemm_128x64_nn")):
        dims = f"[[{SIZE}, {SIZE}], [{SIZE}, {SIZE}]]"
        build.op("aten::mm", start, start + 50, dims=dims, types=FLOAT)
        build.kernel(start + 10, 1000 + 10**7 * start, 9_001_000 + 10**7 * start, kernel)
    analysis = analyze(build.build(A100))
    assert {op.roof[:4] for op in analysis.ops} == {"tf32", "fp32"}


def test_other_operands_keep_their_precision(build: CaptureBuilder) -> None:
    product(build, TF32_GEMM, 9_000_000, '["c10::BFloat16", "c10::BFloat16"]')
    for row in both_rows(analyze(build.build(A100))):
        assert row.roof == "bf16 tensor (datasheet, dense)"


def test_a_name_that_tells_nothing_leaves_it_to_the_setting_and_says_so(
    build: CaptureBuilder,
) -> None:
    product(build, "triton_mm_0", 9_000_000)
    for row in both_rows(analyze(build.build(A100))):
        assert row.roof == "fp32 vector (datasheet, dense)"
        assert any("whether TF32 ran" in text for text in row.assumptions)


def test_emulation_by_three_products_is_said(build: CaptureBuilder) -> None:
    product(build, "fmha_cutlassF_f32_aligned_64x64_rf_sm80(Params)", 9_000_000)
    _, op = both_rows(analyze(build.build(A100)))
    assert any("three TF32 products" in text for text in op.assumptions)


def convolution(build: CaptureBuilder, allow_tf32: bool, kernel: str = "engine") -> None:
    concrete = ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", str(allow_tf32)]
    build.op(
        "aten::cudnn_convolution",
        0,
        50,
        dims="[[8, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []]",
        types='["float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar", '
        '"Scalar", "Scalar", "Scalar"]',
        concrete_inputs=str(concrete).replace("'", '"'),
    )
    build.kernel(10, 1000, 1_001_000, kernel)


@pytest.mark.parametrize(
    ("allow_tf32", "kernel", "device", "precision"),
    [
        (True, "engine", A100, "tf32"),
        (False, "engine", A100, "fp32"),
        (True, "ampere_scudnn_128x64_relu_small_nn_v1", A100, "fp32"),
        # torch allows TF32 by default on every device, also where there is none.
        (True, "engine", V100, "fp32"),
    ],
)
def test_a_convolutions_own_argument_goes_before_the_setting_and_its_kernel_before_both(
    build: CaptureBuilder, allow_tf32: bool, kernel: str, device: Device, precision: str
) -> None:
    convolution(build, allow_tf32, kernel)
    (op,) = analyze(build.build(device)).ops
    assert op.flops is not None
    assert [part.precision for part in op.flops] == [precision]
    assert op.roof_ns is not None


def test_kernels_of_one_call_that_disagree_count_in_the_faster_precision_and_say_so(
    build: CaptureBuilder,
) -> None:
    product(build, TF32_GEMM, 5_000_000)
    build.kernel(20, 6_000_000, 7_000_000, "ampere_sgemm_128x64_nn")
    (op,) = analyze(build.build(A100)).ops
    assert op.flops is not None
    assert [part.precision for part in op.flops] == ["tf32"]
    assert any("ran in tf32 and fp32" in text for text in op.assumptions)


def test_who_has_tf32_units() -> None:
    assert has_tf32(A100)
    assert has_tf32(structs.replace(H100, compute_capability="9.0"))
    assert not has_tf32(V100)
    assert not has_tf32(structs.replace(H100, name="Quadro GP100", compute_capability="6.0"))
    assert not has_tf32(structs.replace(H100, kind="hip", name="AMD Instinct MI300X"))
    assert Fingerprint().allow_tf32_matmul is None
