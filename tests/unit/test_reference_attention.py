"""Every attention version against float64 on the CPU, Triton in its interpreter."""

import pytest
import torch
from versions import module_of

from gpuprof.reference_kernels.attention import VERSIONS
from gpuprof.reference_kernels.attention.problem import PAGE_TOKENS, AttentionProblem
from gpuprof.reference_kernels.suite import (
    Prepared,
    UnsupportedError,
    poison,
    relative_error,
)
from gpuprof.roofline.cost_models.cost import Flops

CPU = torch.device("cpu")
BY_NAME = {version.name: version for version in VERSIONS}

# Lengths that fit no tile; grouped heads but where a version has none.
GROUPED = ("forward:1x4x2x37x16", "causal-forward:2x2x1x37x16")
LONG = ("causal-forward:1x1x1x100x32", "forward:1x1x1x100x32")
GRADIENTS = ("backward:1x4x2x37x16", "causal-backward:2x2x1x37x16")
PAGED = ("decode:3x4x2x50x16", "decode:2x3x3x300x16")
# Triton's interpreter has no products of bf16 matrices.
RESULTS = (
    ("naive", ("forward:1x2x2x37x16", "causal-forward:2x3x3x37x16"), ("fp32", "bf16", "fp16")),
    ("sdpa-math", (*GROUPED, *GRADIENTS), ("fp32", "bf16", "fp16")),
    ("sdpa-flash", (*GROUPED, *GRADIENTS), ("bf16", "fp16")),
    ("gathered-decode", PAGED, ("fp32", "bf16", "fp16")),
    ("triton-flash", (*GROUPED, *LONG), ("fp16",)),
    ("triton-flash-backward", (*GRADIENTS, "causal-backward:1x1x1x70x16"), ("fp16",)),
    ("triton-paged-decode", PAGED, ("fp16",)),
)
# Kernels that only a GPU has.
ON_GPUS_ONLY = {
    "sdpa-efficient",
    "sdpa-cudnn",
    "cuda-flash",
    "cuda-flash-backward",
    "cuda-paged-decode",
}


def prepare(name: str, problem: AttentionProblem) -> Prepared:
    """Past the version's `devices`: in the interpreter every Triton version runs on a CPU."""
    prepared = module_of(BY_NAME[name]).prepare(problem)
    assert isinstance(prepared, Prepared)
    return prepared


@pytest.mark.parametrize(
    ("name", "size", "dtype"),
    [(name, size, dtype) for name, sizes, dtypes in RESULTS for size in sizes for dtype in dtypes],
)
def test_result_is_that_of_float64(name: str, size: str, dtype: str) -> None:
    problem = AttentionProblem(size, dtype, CPU, seed=torch.seed() % 2**31)
    try:
        prepared = prepare(name, problem)
    except UnsupportedError as error:
        # Newer releases have fused attention with grouped heads on a CPU.
        if name == "sdpa-flash" and "same num_heads" in str(error):
            pytest.skip("this torch has not all operators")
        raise
    # The second call finds what the first one left.
    for _ in range(2):
        poison(prepared.outputs)
        prepared.call()
    assert relative_error(prepared.outputs, problem.reference()) <= problem.tolerance


def test_every_version_that_a_cpu_can_run_has_its_result_tested() -> None:
    assert {name for name, _, _ in RESULTS} == set(BY_NAME) - ON_GPUS_ONLY


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        ("naive", GROUPED[0], "each query head with its own"),
        ("naive", GRADIENTS[0], "only the forward"),
        ("sdpa-math", PAGED[0], "reads no pages"),
        ("gathered-decode", GROUPED[0], "only decode"),
        ("triton-flash", GRADIENTS[0], "only the forward"),
        ("triton-flash", "forward:1x1x1x37x24", "not 24"),
        ("triton-flash-backward", GROUPED[0], "only the backward"),
        ("cuda-flash", GRADIENTS[0], "only the forward"),
        ("cuda-flash", GROUPED[0], "head sizes 64 and 128, not 16"),
        ("cuda-flash-backward", GROUPED[0], "only the backward"),
        ("cuda-flash-backward", GRADIENTS[0], "head size 128, not 16"),
        ("triton-paged-decode", GROUPED[0], "only decode"),
        ("cuda-paged-decode", GROUPED[0], "only decode"),
        ("cuda-paged-decode", "decode:1x2x2x40x96", "head sizes 64 and 128, not 96"),
        ("cuda-paged-decode", "decode:1x16x1x40x64", "up to 8 query heads"),
    ],
)
def test_what_a_version_does_not_solve_it_refuses(name: str, size: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        prepare(name, AttentionProblem(size, "fp16", CPU))


def test_a_backend_that_has_no_kernel_refuses() -> None:
    with pytest.raises(UnsupportedError, match="CUDNN_ATTENTION backend refuses"):
        prepare("sdpa-cudnn", AttentionProblem(GROUPED[0], "fp16", CPU))


def test_work_of_causal_attention_counts_the_kept_pairs() -> None:
    work = AttentionProblem("causal-forward:2x4x2x10x8", "bf16", CPU).work()
    pairs = 2 * 4 * 10 * 11 // 2
    assert work.flops == (Flops("matmul", "bf16", 4 * 8 * pairs),)
    query, key = 2 * 4 * 10 * 8 * 2, 2 * 2 * 10 * 8 * 2
    assert (work.bytes_read, work.bytes_written) == (query + 2 * key, query)


def test_work_of_the_backward_is_five_products() -> None:
    work = AttentionProblem("backward:2x4x2x10x8", "fp16", CPU).work()
    assert work.flops == (Flops("matmul", "fp16", 10 * 8 * 2 * 4 * 100),)
    query, key = 2 * 4 * 10 * 8 * 2, 2 * 2 * 10 * 8 * 2
    # Query, output and its gradient, keys, values, and a float32 a row.
    assert work.bytes_read == 3 * query + 2 * key + 2 * 4 * 10 * 4
    assert work.bytes_written == query + 2 * key


def test_work_of_decoding_counts_each_sequences_own_tokens() -> None:
    problem = AttentionProblem("decode:3x4x2x40x8", "bf16", CPU)
    assert problem.lengths.tolist() == [40, 39, 38]
    work = problem.work()
    assert work.flops == (Flops("matmul", "bf16", 4 * 8 * 4 * (40 + 39 + 38)),)
    cache = 2 * (40 + 39 + 38) * 2 * 8 * 2
    tables = 4 * (3 * 3 + 3)
    assert work.bytes_read == 3 * 4 * 8 * 2 + cache + tables


def test_pages_lie_out_of_order_and_none_twice() -> None:
    table = AttentionProblem("decode:4x1x1x160x8", "fp32", CPU).block_table.flatten()
    assert table.sort().values.tolist() == list(range(4 * 160 // PAGE_TOKENS))
    assert table.tolist() != table.sort().values.tolist()


def test_executed_flops_are_those_of_the_tiles_visited() -> None:
    problem = AttentionProblem("causal-forward:1x3x1x40x16", "fp16", CPU)
    # Three tiles of 16 queries see one, two and three tiles of 16 keys.
    executed = prepare("triton-flash", problem).executed_flops
    assert executed == (Flops("matmul", "fp16", 4 * 16 * 3 * 16 * 16 * (1 + 2 + 3)),)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_docstring_says_flops_and_bytes(version) -> None:  # type: ignore[no-untyped-def]
    text = module_of(version).__doc__
    assert "FLOPs: " in text
    assert "ytes" in text


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        ("1x1x1x16x16", "bf16"),
        ("sideways:1x1x1x16x16", "bf16"),
        ("forward:1x1x16x16", "bf16"),
        ("forward:1x3x2x16x16", "bf16"),
        ("forward:1x1x1x0x16", "bf16"),
        ("decode:1x1x1x8x16", "bf16"),
        ("forward:1x1x1x16x16", "fp8"),
    ],
)
def test_unknown_sizes_and_dtypes_are_refused_in_a_sentence(size: str, dtype: str) -> None:
    with pytest.raises(ValueError, match=r"attention (size|has no)"):
        AttentionProblem(size, dtype, CPU)
