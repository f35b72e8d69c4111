"""Every convolution version against float64 on the CPU; CUDA C++ compiles; work by closed forms."""

import pytest
import torch
from versions import module_of

from gpuprof.collectors.errors import MissingDependencyError
from gpuprof.reference_kernels.convolution import VERSIONS
from gpuprof.reference_kernels.convolution.cudnn_call import describe
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import (
    Prepared,
    UnsupportedError,
    poison,
    relative_error,
)
from gpuprof.roofline.cost_models.cost import Flops

CPU = torch.device("cpu")
BY_NAME = {version.name: version for version in VERSIONS}
# What only a GPU can run: cuDNN, and the CUDA C++ sources.
GPU_ONLY = {name for name in BY_NAME if name.startswith("cudnn")} | {"direct", "implicit-tma"}

PADDED, ALL_OPTIONS = "2x24x9x11-17x3x3-p1", "1x8x13x10-40x3x3-p1-s2-d2-g2"
RECTANGLE, POINTWISE = "2x5x9x8-6x5x3", "1x16x8x8-16x1x1-s2"
LAYER = "2x6x9x7-10x3x3-p1+bn-relu"
GENERAL = (PADDED, ALL_OPTIONS, RECTANGLE, POINTWISE)
# Triton's interpreter has no products of bf16 matrices.
RESULTS = (
    ("torch-unfused", (*GENERAL, LAYER), ("fp16", "bf16", "tf32", "fp32")),
    ("im2col", GENERAL, ("fp16", "bf16", "tf32", "fp32")),
    ("implicit-gemm", (*GENERAL, LAYER), ("fp16", "tf32")),
    ("implicit-precomputed", (*GENERAL, LAYER, "1x3x12x12-8x7x7-p3"), ("fp16", "tf32")),
    ("winograd-2x2", (PADDED, "1x5x8x7-6x3x3"), ("fp16", "tf32", "fp32")),
    ("winograd-4x4", (PADDED, "1x5x8x7-6x3x3"), ("fp16", "tf32", "fp32")),
    ("fft", GENERAL, ("fp32",)),
)
REFUSALS = (
    ("cudnn", LAYER, "cudnn-fused"),
    ("cudnn-fused", PADDED, r"\+bn-relu"),
    ("direct", LAYER, r"\+bn-relu"),
    ("im2col", LAYER, r"\+bn-relu"),
    ("fft", LAYER, r"\+bn-relu"),
    ("winograd-2x2", RECTANGLE, "3 x 3"),
    ("winograd-4x4", ALL_OPTIONS, "stride 1"),
    ("implicit-precomputed", "1x3x16x16-4x9x7", "62 taps"),
    ("implicit-tma", LAYER, r"\+bn-relu"),
    ("implicit-tma", PADDED, "in 64s and filters in 8s, not 24 and 17"),
)


def prepare(name: str, problem: ConvolutionProblem) -> Prepared:
    """Past the version's `devices`: in the interpreter every Triton version runs on a CPU."""
    prepared = module_of(BY_NAME[name]).prepare(problem)
    assert isinstance(prepared, Prepared)
    return prepared


@pytest.mark.parametrize(
    ("name", "size", "dtype"),
    [(name, size, dtype) for name, sizes, dtypes in RESULTS for size in sizes for dtype in dtypes],
)
def test_result_is_that_of_float64(name: str, size: str, dtype: str) -> None:
    problem = ConvolutionProblem(size, dtype, CPU, seed=torch.seed() % 2**31)
    prepared = prepare(name, problem)
    poison(prepared.outputs)
    prepared.call()
    assert relative_error(prepared.outputs, problem.reference()) <= problem.tolerance


def test_every_version_that_a_cpu_can_run_has_its_result_tested() -> None:
    assert {name for name, _, _ in RESULTS} == set(BY_NAME) - GPU_ONLY


@pytest.mark.parametrize(("name", "size", "reason"), REFUSALS)
def test_what_a_version_does_not_solve_it_refuses(name: str, size: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        prepare(name, ConvolutionProblem(size, "fp32", CPU))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_cuda_source_compiles(architecture: str) -> None:
    compile_kernel = module_of(BY_NAME["direct"]).compile_kernel
    try:
        kernel = compile_kernel(architecture)
    except MissingDependencyError as error:
        pytest.skip(f"NVRTC is not here: {error}")
    assert kernel.name == "convolve"


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_docstring_says_flops_bytes_and_source(version) -> None:  # type: ignore[no-untyped-def]
    text = module_of(version).__doc__
    if "as cudnn." not in text:
        assert all(part in text for part in ("FLOPs", "Bytes: ", "Expected", "Source: "))


def test_work_is_its_closed_form() -> None:
    work = ConvolutionProblem("2x8x10x12-16x3x5-p1-g2", "fp16", CPU).work()
    outputs = 2 * 16 * 10 * 10
    assert work.flops == (Flops("matmul", "fp16", 2 * outputs * 4 * 3 * 5),)
    assert work.bytes_read == 2 * (2 * 8 * 10 * 12 + 16 * 4 * 3 * 5)
    assert work.bytes_written == 2 * outputs


def test_what_no_window_covers_is_not_read() -> None:
    work = ConvolutionProblem("1x4x8x8-4x1x1-s2", "fp32", CPU).work()
    assert work.bytes_read == 4 * (4 * 4 * 4 + 4 * 4)


def test_a_layers_work_counts_batch_norm_and_relu() -> None:
    work = ConvolutionProblem(LAYER, "fp16", CPU).work()
    assert work.flops[1] == Flops("vector", "fp32", 5 * 2 * 10 * 9 * 7)
    assert work.bytes_read == 2 * (2 * 6 * 9 * 7 + 10 * 6 * 9 + 5 * 10)


@pytest.mark.parametrize(("name", "fewer"), [("winograd-2x2", 2.25), ("winograd-4x4", 4.0)])
def test_winograd_executes_fewer_products_than_the_definition(name: str, fewer: float) -> None:
    problem = ConvolutionProblem("2x64x16x16-64x3x3-p1", "fp32", CPU)
    executed = prepare(name, problem).executed_flops
    assert executed is not None
    effective = problem.work().flops[0].count
    assert effective / executed[0].count == fewer
    assert sum(part.count for part in executed) < effective


def test_fft_executes_fewer_operations_than_the_definition_of_a_large_filter() -> None:
    problem = ConvolutionProblem("2x16x20x20-16x7x7-p3", "fp32", CPU)
    executed = prepare("fft", problem).executed_flops
    assert executed is not None
    assert sum(part.count for part in executed) < problem.work().flops[0].count


def test_the_table_wastes_no_tile_on_few_channels() -> None:
    problem = ConvolutionProblem("1x3x8x8-32x3x3", "fp16", CPU)
    by_tap = prepare("implicit-gemm", problem).executed_flops
    by_table = prepare("implicit-precomputed", problem).executed_flops
    assert by_tap is not None
    assert by_table is not None
    # Nine taps of 3 channels, each a tile of 32; all 27 values in one.
    assert by_tap[0].count == 9 * by_table[0].count


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        ("2x8x9x9", "fp16"),
        ("2x8x9x9-8x3x3-q1", "fp16"),
        ("2x8x2x2-8x3x3", "fp16"),
        ("2x9x9x9-8x3x3-g2", "fp16"),
        ("2x8x9x9-8x3x3-s0", "fp16"),
        ("2x8x9x9-8x3x3", "fp8"),
    ],
)
def test_unknown_sizes_and_dtypes_are_refused_in_a_sentence(size: str, dtype: str) -> None:
    with pytest.raises(ValueError, match=r"expected|at least 1|multiples|larger|has no"):
        ConvolutionProblem(size, dtype, CPU)


@pytest.mark.parametrize(
    ("kernels", "note"),
    [
        ([("sm90_xmma_fprop_implicit_gemm_f16", 40.0)], "implicit GEMM by sm90_xmma_fprop"),
        (
            [("nchwToNhwcKernel", 9.0), ("sm90_xmma_fprop_implicit_gemm_f16", 40.0)],
            "implicit GEMM by sm90_xmma_fprop_implicit_gemm_f16, with transposes",
        ),
        ([("fft2d_r2c_32x32", 5.0), ("sm80_xmma_gemm_cf32", 90.0)], "FFT by sm80_xmma_gemm_cf32"),
        ([("volta_scudnn_winograd_128x128", 1.0)], "Winograd by volta_scudnn_winograd_128x128"),
        ([("something_new", 1.0)], "unknown algorithm by something_new"),
    ],
)
def test_cudnns_algorithm_is_named_from_its_kernels(
    kernels: list[tuple[str, float]], note: str
) -> None:
    assert describe(kernels).startswith(note)


def test_no_kernels_name_no_algorithm() -> None:
    assert describe([]) == ""
