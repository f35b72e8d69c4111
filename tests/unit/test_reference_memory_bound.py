"""Elementwise, softmax, norm and stream versions against float64 on the CPU."""

import math

import pytest
import torch
from versions import module_of

from gpuprof.collectors.errors import MissingDependencyError
from gpuprof.reference_kernels.cuda_vectors import row_shares, vector_size
from gpuprof.reference_kernels.families import load_family
from gpuprof.reference_kernels.nvrtc import CudaKernel
from gpuprof.reference_kernels.suite import (
    Prepared,
    Problem,
    UnsupportedError,
    Version,
    poison,
    relative_error,
)
from gpuprof.reference_kernels.triton_rows import choose_row_tile
from gpuprof.roofline.cost_models.cost import Flops

CPU = torch.device("cpu")
DTYPES = ("fp32", "bf16", "fp16")
# Numbers of elements, rows and columns that fit no block.
SIZES = {
    "elementwise": ("gelu:5x1003", "swiglu:7x129", "rotary:2x5x3x24"),
    "softmax": ("5x100", "3x1500", "1x1"),
    "norm": ("layer:5x100", "rms:3x1500"),
    "stream": ("copy:5001", "triad:5001"),
}
# torch has a fused operator for the first size only.
FIRST_ONLY = {"elementwise/torch"}
COMPILED = "torch-compile"
VERSIONS = [v for family in SIZES for v in load_family(family).versions]


def compiled(version: Version, problem: Problem) -> CudaKernel:
    module = module_of(version)
    if version.family in ("softmax", "norm"):
        # The largest share of a row is the longest program.
        share = row_shares(problem.columns, problem.dtype)[-1]  # type: ignore[attr-defined]
        kernel = module.compile_for(problem, share, "sm_90a")
    else:
        kernel, _ = module.kernel_for(problem, "sm_90a")
    assert isinstance(kernel, CudaKernel)
    return kernel


def problem_of(version: Version, size: str, dtype: str) -> Problem:
    return load_family(version.family).problem(size, dtype, CPU, seed=torch.seed() % 2**31)


def prepare(version: Version, problem: Problem) -> Prepared:
    """Past the version's `devices`: in the interpreter every Triton version runs on a CPU."""
    prepared = module_of(version).prepare(problem)
    assert isinstance(prepared, Prepared)
    return prepared


def assert_right(version: Version, size: str, dtype: str) -> None:
    problem = problem_of(version, size, dtype)
    prepared = prepare(version, problem)
    # The second call finds what the first one left.
    for _ in range(2):
        poison(prepared.outputs)
        prepared.call()
    assert relative_error(prepared.outputs, problem.reference()) <= problem.tolerance


@pytest.mark.parametrize(
    ("version", "size"),
    [
        (version, size)
        for version in VERSIONS
        if version.name != COMPILED and "cuda-core" not in version.requires
        for size in SIZES[version.family][: 1 if version.label in FIRST_ONLY else None]
    ],
    ids=lambda value: value if isinstance(value, str) else value.label,
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_result_is_that_of_float64(version: Version, size: str, dtype: str) -> None:
    assert_right(version, size, dtype)


@pytest.mark.parametrize("family", ["elementwise", "softmax", "norm"])
def test_formulas_given_to_the_compiler_are_right(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler itself is not tested: it may want a C++ compiler or a GPU."""
    monkeypatch.setattr(torch, "compile", lambda formula, **_: formula)
    (version,) = (v for v in load_family(family).versions if v.name == COMPILED)
    for size in SIZES[family]:
        assert_right(version, size, "fp32")


@pytest.mark.parametrize("size", ["swiglu:7x129", "rotary:2x5x3x24"])
def test_torch_refuses_what_it_has_no_operator_for(size: str) -> None:
    (version,) = (v for v in VERSIONS if v.label == "elementwise/torch")
    with pytest.raises(UnsupportedError, match="no fused operator"):
        prepare(version, problem_of(version, size, "fp32"))


@pytest.mark.parametrize("label", ["softmax/triton", "softmax/cuda", "norm/triton", "norm/cuda"])
def test_rows_too_long_for_registers_are_refused(label: str) -> None:
    (version,) = (v for v in VERSIONS if v.label == label)
    size = "rms:1x70000" if version.family == "norm" else "1x70000"
    with pytest.raises(UnsupportedError, match="rows of up to"):
        prepare(version, problem_of(version, size, "fp32"))


@pytest.mark.parametrize(
    ("version", "size"),
    [
        (version, size)
        for version in VERSIONS
        if "cuda-core" in version.requires
        for size in SIZES[version.family]
    ],
    ids=lambda value: value if isinstance(value, str) else value.label,
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_source_compiles(version: Version, size: str, dtype: str) -> None:
    problem = problem_of(version, size, dtype)
    try:
        kernel = compiled(version, problem)
    except MissingDependencyError as error:
        pytest.skip(f"NVRTC is not here: {error}")
    assert kernel.name in ("copy", "triad", "gelu", "swiglu", "rotary", "softmax", "normalise")


@pytest.mark.parametrize(
    ("size", "dtype", "flops", "read", "written"),
    [
        ("gelu:10x20", "bf16", 5 * 200, 400, 400),
        ("swiglu:10x20", "fp32", 5 * 200, 1600, 800),
        ("rotary:2x3x4x8", "fp16", 3 * 192, 384 + 2 * 3 * 4 * 4, 384),
    ],
)
def test_elementwise_work_is_its_closed_form(
    size: str, dtype: str, flops: int, read: int, written: int
) -> None:
    work = load_family("elementwise").problem(size, dtype, CPU).work()
    assert work.flops == (Flops("vector", "fp32", flops),)
    assert (work.bytes_read, work.bytes_written) == (read, written)


def test_softmax_and_norm_work_is_their_closed_form() -> None:
    softmax = load_family("softmax").problem("10x20", "bf16", CPU).work()
    assert softmax.flops == (Flops("vector", "fp32", 5 * 200),)
    assert (softmax.bytes_read, softmax.bytes_written) == (400, 400)
    layer = load_family("norm").problem("layer:10x20", "bf16", CPU).work()
    assert layer.flops == (Flops("vector", "fp32", 8 * 200),)
    assert (layer.bytes_read, layer.bytes_written) == (400 + 2 * 40, 400)
    rms = load_family("norm").problem("rms:10x20", "fp32", CPU).work()
    assert rms.flops == (Flops("vector", "fp32", 4 * 200),)
    assert (rms.bytes_read, rms.bytes_written) == (800 + 80, 800)


def test_rotation_keeps_the_length_of_each_pair() -> None:
    problem = load_family("elementwise").problem("rotary:2x7x3x16", "fp32", CPU)
    (before,), (after,) = [problem.inputs[0].double()], problem.reference()
    for one, other in zip(before.chunk(2, -1), after.chunk(2, -1), strict=True):
        assert one.shape == other.shape
    lengths = [sum(half.square() for half in t.chunk(2, -1)) for t in (before, after)]
    torch.testing.assert_close(lengths[0], lengths[1], rtol=1e-6, atol=0)
    # Position 0 is not turned.
    torch.testing.assert_close(before[:, 0], after[:, 0])


def test_vectors_are_16_bytes_where_every_row_begins_on_16() -> None:
    assert vector_size("bf16", 4096) == 8
    assert vector_size("fp32", 4096) == 4
    assert vector_size("bf16", 4100) == 1
    assert vector_size("fp32") == 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 31, 100, 4096, 16384, 17001, 32768])
def test_a_block_holds_a_whole_row(columns: int, dtype: str) -> None:
    for share in row_shares(columns, dtype):
        assert share.threads * share.items * share.vector >= columns
        assert share.threads % 32 == 0
        assert share.threads <= 1024
        assert share.threads * share.blocks <= 2048


@pytest.mark.parametrize("columns", [1, 31, 100, 4096, 17001, 65536])
def test_a_triton_program_holds_whole_rows(columns: int) -> None:
    tile = choose_row_tile(columns)
    assert tile.padded >= columns
    assert math.log2(tile.padded).is_integer()
    assert math.log2(tile.rows * tile.warps).is_integer()


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.label)
def test_docstring_says_flops_and_bytes(version: Version) -> None:
    text = module_of(version).__doc__ or ""
    assert "FLOPs: " in text
    assert "ytes" in text


@pytest.mark.parametrize(
    ("family", "size", "dtype"),
    [
        ("elementwise", "5x5", "fp32"),
        ("elementwise", "gelu:5", "fp32"),
        ("elementwise", "tanh:5x5", "fp32"),
        ("elementwise", "rotary:1x1x1x5", "fp32"),
        ("elementwise", "gelu:5x5", "int8"),
        ("softmax", "5", "fp32"),
        ("softmax", "0x5", "fp32"),
        ("softmax", "5x5", "fp64"),
        ("norm", "5x5", "fp32"),
        ("norm", "batch:5x5", "fp32"),
        ("norm", "rms:5x5", "fp8"),
    ],
)
def test_unknown_sizes_and_dtypes_are_refused_in_a_sentence(
    family: str, size: str, dtype: str
) -> None:
    with pytest.raises(ValueError, match=rf"{family} (size|has no)"):
        load_family(family).problem(size, dtype, CPU)
