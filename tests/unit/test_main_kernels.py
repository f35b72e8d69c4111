"""Which kernel of an operator's call does its work, and which help."""

import pytest
from capture_builder import CaptureBuilder

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
