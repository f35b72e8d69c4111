"""Which kernel of an operator's call does its work, and which help."""

import pytest
from capture_builder import CaptureBuilder

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models.call import MathMode
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.main_kernels import main_kernel
from gpuprof.roofline.work.work import Work, find_work


@pytest.mark.parametrize(
    ("times_ns", "main"),
    [
        ({"nvjet_sm90_tst": 90, "splitKreduce_kernel": 10}, "nvjet_sm90_tst"),
        # The backward pass of flash attention: all three are named after products.
        (
            {"flash_bwd_dot_do_o": 8, "flash_bwd_dq_dk_dv": 85, "flash_bwd_convert": 7},
            "flash_bwd_dq_dk_dv",
        ),
        # Layouts are converted around it, in half of the time at most.
        ({"ampere_sgemm": 60, "nchwToNhwc": 40}, "ampere_sgemm"),
        ({"ampere_sgemm": 30, "nchwToNhwc": 70}, None),
        # The two gradients of a convolution.
        ({"xmma_dgrad": 50, "xmma_wgrad": 50}, None),
        ({"xmma_dgrad": 20, "xmma_wgrad": 80}, "xmma_wgrad"),
        ({"first": 51, "second": 49}, "first"),
        ({"first": 40, "second": 30, "third": 30}, None),
    ],
)
def test_the_main_kernel_of_a_product(times_ns: dict[str, int], main: str | None) -> None:
    assert main_kernel(times_ns, products=True) == main


def test_other_work_goes_by_time_alone() -> None:
    times_ns = {"gemm_like": 30, "sort": 70}
    assert main_kernel(times_ns, products=False) == "sort"


def work_of(build: CaptureBuilder) -> Work:
    return find_work(attribute(build.build()), MathMode())


def test_calls_that_launched_the_same_kernels_have_the_same_main_one(
    build: CaptureBuilder,
) -> None:
    """In the second call the helper takes longer, as after a pause: it is the helper still."""
    for start, helper_ns in ((0, 5), (100, 60)):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1050 + start, "some_gemm")
        build.kernel(start + 20, 1100 + start, 1100 + start + helper_ns, "reduce")
    work = work_of(build)
    roles = work.kernels.select("name", "role").unique().sort("name").rows()
    assert roles == [("reduce", "helper"), ("some_gemm", "main")]
    assert set(work.kernels["main_kernel"]) == {"some_gemm"}


def test_copies_beside_a_kernel_help_it_and_alone_do_the_work(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1500, "Memset (Device)", kind="memset", bytes=512)
    build.kernel(20, 1500, 1540, "some_gemm")
    build.op("aten::copy_", 100, 150, dims="[[500], [500]]", types='["float", "float"]')
    build.kernel(110, 2000, 2100, "Memcpy DtoD", kind="memcpy", bytes=2000)
    build.kernel(200, 3000, 3100, "orphan")
    roles = dict(work_of(build).kernels.select("name", "role").iter_rows())
    assert roles == {
        "Memset (Device)": "helper",
        "some_gemm": "sole",
        "Memcpy DtoD": "sole",
        "orphan": None,
    }


def test_several_launches_of_one_kernel_do_the_work_together(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    for launched in (10, 20):
        build.kernel(launched, 1000 + launched, 1008 + launched, "part_of_gemm")
    assert work_of(build).kernels["role"].to_list() == ["sole", "sole"]


DGRAD = "sm80_xmma_dgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc"
WGRAD = "cutlass_tensorop_f16_s16816wgrad_optimized_f16_128x128_32x5_nhwc_align8"
# Batch, channels, size and filters of a 3 x 3 convolution.
N, C, H, K = 8, 64, 56, 128


def backward(build: CaptureBuilder, **kernels: int) -> RooflinePoint:
    """The operator's row of one convolution_backward that launched these kernels, in us each."""
    concrete = ["", "", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    dims = [[N, K, H, H], [N, C, H, H], [K, C, 3, 3], *[[]] * 8]
    build.op(
        "aten::convolution_backward",
        0,
        50,
        dims=str(dims),
        types=str(["c10::Half"] * 3 + ["ScalarList"] * 8).replace("'", '"'),
        concrete_inputs=str([*concrete, "[True, True, False]"]).replace("'", '"'),
    )
    start_ns = 1_000
    for launched, (name, length_us) in enumerate(kernels.items()):
        build.kernel(10 + launched, start_ns, start_ns + length_us * 1_000, name)
        start_ns += length_us * 1_000
    (op,) = analyze(build.build()).ops
    return op


def test_each_gradient_of_a_convolution_has_its_own_products(build: CaptureBuilder) -> None:
    """2 N H W C K 9 operations each; the layouts around them are helpers."""
    op = backward(build, **{DGRAD: 100, WGRAD: 140, "nchwToNhwcKernel": 30})
    each = 2 * N * H * H * C * K * 9
    assert op.total_flops == 2 * each
    rows = {row.name: row for row in analyze(build.build()).kernels}
    assert rows[DGRAD].total_flops == rows[WGRAD].total_flops == each
    assert rows[WGRAD].flops_per_s == pytest.approx(each / 140e-6)
    outputs, inputs, weights = (2 * size for size in (N * K * H * H, N * C * H * H, K * C * 9))
    assert (rows[DGRAD].bytes_read, rows[DGRAD].bytes_written) == (outputs + weights, inputs)
    assert (rows[WGRAD].bytes_read, rows[WGRAD].bytes_written) == (outputs + inputs, weights)
    helper = rows["nchwToNhwcKernel"].bottleneck
    assert f"whose work counts at {WGRAD} and {DGRAD}" in helper.evidence
    assert {row.bottleneck.kind for row in rows.values()} == {op.bottleneck.kind}


@pytest.mark.parametrize(
    "kernels",
    [
        # Winograd's: the product between them is the largest.
        {"winogradWgradDelta4x4": 20, "winogradWgradData4x4": 20, DGRAD: 60, "volta_sgemm": 90},
        {DGRAD: 60, "some_other_gemm": 60},
    ],
)
def test_gradients_whose_kernels_are_not_told_share_the_work(
    build: CaptureBuilder, kernels: dict[str, int]
) -> None:
    backward(build, **kernels)
    for row in analyze(build.build()).kernels:
        assert row.flops is None
        assert "share the work" in row.bottleneck.evidence
