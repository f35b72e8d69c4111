"""Every GEMM version against float64 on the CPU; CUDA C++ compiles; work by closed forms."""

import re
from typing import Literal

import pytest
import torch
from versions import module_of

from gpuprof.collectors.errors import MissingDependencyError
from gpuprof.reference_kernels.gemm import VERSIONS
from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.suite import (
    Prepared,
    UnsupportedError,
    poison,
    relative_error,
)
from gpuprof.roofline.cost_models.cost import Flops

CPU = torch.device("cpu")
BY_NAME = {version.name: version for version in VERSIONS}
CUDA_SOURCES = [version.name for version in VERSIONS if "cuda-core" in version.requires]

PLAIN, ALIGNED, SINGLE_ROW = "45x37x51", "48x64x80", "1x200x150"
GROUPED, GELU, RELU = "3g64x48x40", "33x48x72+gelu", "33x40x72+relu"
# Small sizes that fit no tile. Triton's interpreter has no products of bf16 matrices, and TMA wants
# rows of whole 16 bytes, as cuBLASLt does of 8-bit types.
RESULTS = (
    ("cublas", (PLAIN, SINGLE_ROW, GELU, RELU), ("fp16", "bf16", "tf32", "fp32", "fp64")),
    ("cublas", (ALIGNED,), ("fp8", "int8")),
    ("cublaslt-epilogue", (GELU, RELU), ("fp16", "bf16")),
    ("triton-tiled", (PLAIN, ALIGNED, SINGLE_ROW), ("fp16", "fp8", "int8", "tf32", "fp32")),
    ("triton-persistent", (ALIGNED, "40x72x120"), ("fp16",)),
    ("triton-persistent", (ALIGNED,), ("fp8",)),
    ("torch-gemv", (SINGLE_ROW,), ("fp16", "bf16", "fp32")),
    ("triton-gemv", (SINGLE_ROW,), ("fp16", "bf16", "fp32")),
    ("triton-skinny", (SINGLE_ROW, "13x70x150", "16x64x32"), ("fp16",)),
    ("torch-grouped", (GROUPED,), ("bf16",)),
    ("triton-grouped", (GROUPED, "5g7x37x51"), ("fp16",)),
)
REFUSALS = (
    ("cublas", GROUPED, "fp16", "no groups"),
    ("cublas", PLAIN, "fp8", "in 16s"),
    ("cublas", GELU, "int8", "no epilogue in int8"),
    ("cublas", GROUPED, "fp8", "no groups"),
    ("cublaslt-epilogue", PLAIN, "bf16", "relu"),
    ("cuda-naive", GELU, "fp32", "no groups and no epilogue"),
    ("cuda-tiled", GROUPED, "fp32", "no groups and no epilogue"),
    ("cuda-register-blocked", GROUPED, "fp32", "no groups and no epilogue"),
    ("cuda-tensor-core", PLAIN, "bf16", "in 8s"),
    ("cuda-tensor-core", GROUPED, "bf16", "no groups and no epilogue"),
    ("cuda-wgmma", PLAIN, "bf16", "in 8s"),
    ("cuda-wgmma", GROUPED, "bf16", "no groups and no epilogue"),
    ("cuda-persistent", PLAIN, "bf16", "16 bytes"),
    ("cuda-persistent", RELU, "fp16", "no groups and no epilogue"),
    ("triton-tiled", GROUPED, "fp16", "no groups and no epilogue"),
    ("triton-persistent", RELU, "fp16", "no groups and no epilogue"),
    ("triton-persistent", PLAIN, "fp16", "16 bytes"),
    ("torch-gemv", PLAIN, "fp16", "M = 1"),
    ("triton-gemv", PLAIN, "fp16", "M = 1"),
    ("triton-skinny", PLAIN, "fp16", "M up to 16"),
    ("torch-grouped", PLAIN, "bf16", "groups"),
    ("torch-grouped", "3g64x47x40", "bf16", "in 8s|has no"),
    ("triton-grouped", PLAIN, "fp16", "groups"),
)


def prepare(name: str, problem: GemmProblem) -> Prepared:
    """Past the version's `devices`: in the interpreter every Triton version runs on a CPU."""
    prepared = module_of(BY_NAME[name]).prepare(problem)
    assert isinstance(prepared, Prepared)
    return prepared


@pytest.mark.parametrize(
    ("name", "size", "dtype"),
    [(name, size, dtype) for name, sizes, dtypes in RESULTS for size in sizes for dtype in dtypes],
)
def test_result_is_that_of_float64(name: str, size: str, dtype: str) -> None:
    problem = GemmProblem(size, dtype, CPU, seed=torch.seed() % 2**31)
    if name == "torch-grouped" and not hasattr(torch, "_grouped_mm"):
        pytest.skip("this torch has not all operators")
    prepared = prepare(name, problem)
    poison(prepared.outputs)
    try:
        prepared.call()
    except NotImplementedError:
        pytest.skip("this torch has not all operators")
    assert relative_error(prepared.outputs, problem.reference()) <= problem.tolerance


def test_every_version_but_cuda_sources_has_its_result_tested() -> None:
    assert {name for name, _, _ in RESULTS} == set(BY_NAME) - set(CUDA_SOURCES)


@pytest.mark.parametrize(("name", "size", "dtype", "reason"), REFUSALS)
def test_what_a_version_does_not_solve_it_refuses(
    name: str, size: str, dtype: str, reason: str
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        prepare(name, GemmProblem(size, dtype, CPU))


# Sources for Hopper: test_reference_hopper.py.
@pytest.mark.parametrize("name", [name for name in CUDA_SOURCES if name != "cuda-persistent"])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_cuda_source_compiles(name: str, architecture: str) -> None:
    compile_kernel = module_of(BY_NAME[name]).compile_kernel
    if name == "cuda-wgmma" and architecture != "sm_90a":
        pytest.skip("wgmma exists in Hopper only")
    sixteen_bit = name in ("cuda-tensor-core", "cuda-wgmma")
    variants = [{"bf16": True}, {"bf16": False}] if sixteen_bit else [{}]
    try:
        kernels = [compile_kernel(architecture, **variant) for variant in variants]
    except MissingDependencyError as error:
        pytest.skip(f"NVRTC is not here: {error}")
    assert [kernel.name for kernel in kernels] == ["gemm"] * len(variants)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_docstring_says_flops_bytes_and_source(version) -> None:  # type: ignore[no-untyped-def]
    text = module_of(version).__doc__
    assert all(part in text for part in ("FLOPs: ", "Bytes: ", "Expected", "Source: "))


def test_work_of_a_product_is_its_closed_form() -> None:
    work = GemmProblem("30x20x10", "bf16", CPU).work()
    assert work.flops == (Flops("matmul", "bf16", 2 * 30 * 20 * 10),)
    assert (work.bytes_read, work.bytes_written) == (2 * (30 * 10 + 10 * 20), 2 * 30 * 20)


def test_work_of_an_epilogue_counts_bias_and_activation() -> None:
    work = GemmProblem("30x20x10+gelu", "fp16", CPU).work()
    assert work.flops[1] == Flops("vector", "fp32", 8 * 30 * 20)
    assert work.bytes_read == 2 * (30 * 10 + 10 * 20 + 20)


def test_work_of_groups_reads_every_groups_matrix() -> None:
    work = GemmProblem("4g30x20x10", "bf16", CPU).work()
    assert work.flops == (Flops("matmul", "bf16", 2 * 30 * 20 * 10),)
    assert work.bytes_read == 2 * (30 * 10 + 4 * 10 * 20) + 4 * 4


@pytest.mark.parametrize(
    ("dtype", "bytes_an_operand", "bytes_a_result"), [("fp8", 1, 2), ("int8", 1, 4)]
)
def test_eight_bit_operands_give_wider_results(
    dtype: str, bytes_an_operand: int, bytes_a_result: int
) -> None:
    work = GemmProblem("32x32x32", dtype, CPU).work()
    assert work.bytes_read == 2 * 32 * 32 * bytes_an_operand
    assert work.bytes_written == 32 * 32 * bytes_a_result


def test_groups_share_all_rows_and_may_be_empty() -> None:
    offsets = GemmProblem("64g40x8x8", "fp32", CPU).offsets
    assert offsets is not None
    assert offsets[-1] == 40
    assert (offsets.diff() >= 0).all()
    assert (offsets.diff() == 0).any()


def test_executed_flops_are_those_of_whole_tiles() -> None:
    problem = GemmProblem(PLAIN, "fp16", CPU)
    executed = prepare("triton-tiled", problem).executed_flops
    assert executed == (Flops("matmul", "fp16", 2 * 64 * 64 * 64),)


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        ("4096", "bf16"),
        ("4x4x4x4", "bf16"),
        ("0x4x4", "bf16"),
        ("4x4x4+tanh", "bf16"),
        ("4x4x4", "fp4"),
    ],
)
def test_unknown_sizes_and_dtypes_are_refused_in_a_sentence(size: str, dtype: str) -> None:
    with pytest.raises(ValueError, match=r"expected|at least 1|has n"):
        GemmProblem(size, dtype, CPU)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_default_problem_can_be_made(device: Literal["cuda", "cpu"]) -> None:
    for size in GemmProblem.default_sizes[device]:
        # The same forms, smaller.
        small = re.sub(r"\d{3,}", "8", size)
        for dtype in GemmProblem.default_dtypes[device]:
            assert GemmProblem(small, dtype, CPU).work().flops


@pytest.mark.parametrize("name", ["cublas", "triton-tiled"])
def test_fp8_is_refused_where_the_gpu_has_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    problem = GemmProblem(ALIGNED, "fp8", CPU)
    monkeypatch.setattr(problem, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    with pytest.raises(UnsupportedError, match=r"needs compute capability 8\.9, this GPU has 8\.0"):
        prepare(name, problem)
