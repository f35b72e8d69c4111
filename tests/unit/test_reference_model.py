"""The decoder's versions against float64 on the CPU; its work by closed forms."""

import pytest
import torch
from versions import module_of

from gpuprof.reference_kernels.model import VERSIONS
from gpuprof.reference_kernels.model.problem import MODELS, ModelProblem
from gpuprof.reference_kernels.suite import UnsupportedError, poison, relative_error

CPU = torch.device("cpu")
BY_NAME = {version.name: version for version in VERSIONS}
SIZES = ("prefill:tiny:2x2x33", "decode:tiny:2x2x33", "train:tiny:2x2x33")


@pytest.mark.parametrize("name", ["eager", "torch-compile"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_result_is_that_of_float64(
    name: str, size: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compiler itself is not tested: it may want a C++ compiler or a GPU.
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    problem = ModelProblem(size, dtype, CPU, seed=torch.seed() % 2**31)
    prepared = module_of(BY_NAME[name]).prepare(problem)
    # The second call finds what the first one left.
    for _ in range(2):
        poison(prepared.outputs)
        prepared.call()
    assert relative_error(prepared.outputs, problem.reference()) <= problem.tolerance


def test_a_graph_needs_a_gpu() -> None:
    with pytest.raises(UnsupportedError, match="needs a GPU"):
        module_of(BY_NAME["cuda-graph"]).prepare(ModelProblem(SIZES[0], "fp32", CPU))


def test_decoding_a_token_equals_the_last_token_of_a_prefill() -> None:
    """With a cache that the prefill itself filled."""
    prefill = ModelProblem("prefill:tiny:2x2x9", "fp32", CPU, seed=3)
    states, keys, values = prefill.reference()
    decode = ModelProblem("decode:tiny:2x2x9", "fp32", CPU, seed=4)
    assert decode.cache is not None
    decode.blocks = prefill.blocks
    decode.input = prefill.input[:, -1:]
    decode.cache.keys.copy_(keys)
    decode.cache.values.copy_(values)
    # What decoding must write itself.
    poison((decode.cache.keys[:, :, :, -1], decode.cache.values[:, :, :, -1]))
    (state,) = decode.reference()
    torch.testing.assert_close(state[:, 0], states[:, -1], rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_input_and_every_weight() -> None:
    problem = ModelProblem("train:tiny:2x1x5", "fp32", CPU)
    shapes = [tensor.shape for tensor in problem.reference()]
    assert shapes == [problem.input.shape, *(weight.shape for weight in problem.weights)]
    assert len(problem.weights) == 2 * 7


def test_work_of_a_prefill_is_its_closed_form() -> None:
    problem = ModelProblem("prefill:tiny:3x2x10", "bf16", CPU)
    hidden, heads, keys, inner = 64, 4, 2, 160
    weights = hidden * (heads + 2 * keys) * 16 + hidden * hidden + 3 * hidden * inner
    pairs = 3 * 2 * heads * 55
    (flops,) = problem.work().flops
    assert flops.count == 2 * 3 * weights * 20 + 4 * 16 * pairs
    states, cache = 2 * 10 * hidden * 2, 2 * 3 * 2 * keys * 10 * 16 * 2
    assert problem.work().bytes_read == 3 * (weights + 2 * hidden) * 2 + states
    assert problem.work().bytes_written == states + cache


def test_work_of_decoding_reads_the_past_and_writes_one_token() -> None:
    problem = ModelProblem("decode:tiny:3x2x10", "bf16", CPU)
    prefill = ModelProblem("prefill:tiny:3x2x10", "bf16", CPU)
    weights = sum(weight.nbytes for weight in prefill.weights)
    states, token = 2 * 64 * 2, 2 * 3 * 2 * 2 * 16 * 2
    assert problem.work().bytes_read == weights + states + 9 * token
    assert problem.work().bytes_written == states + token


def test_a_training_step_is_three_forwards_and_the_recomputed_scores() -> None:
    forward = ModelProblem("prefill:tiny:1x2x10", "bf16", CPU).work().flops[0].count
    step = ModelProblem("train:tiny:1x2x10", "bf16", CPU).work().flops[0].count
    pairs = 2 * 4 * 55
    assert step == 3 * forward + 2 * 16 * pairs


def test_the_7b_block_has_the_weights_of_llama_2() -> None:
    shapes = MODELS["7b"].weight_shapes
    assert shapes["query_key_value"] == (3 * 4096, 4096)
    assert shapes["gate"] == (11008, 4096)
    assert MODELS["8b"].weight_shapes["query_key_value"] == (4096 + 2 * 1024, 4096)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_docstring_says_flops_and_bytes(version) -> None:  # type: ignore[no-untyped-def]
    text = module_of(version).__doc__
    assert "FLOPs" in text
    assert "ytes" in text


@pytest.mark.parametrize(
    "size",
    ["prefill:1x1x8", "prefill:70b:1x1x8", "sideways:tiny:1x1x8", "train:tiny:1x8",
     "train:tiny:0x1x8", "decode:tiny:1x1x1"],
)  # fmt: skip
def test_unknown_sizes_are_refused_in_a_sentence(size: str) -> None:
    with pytest.raises(ValueError, match="model size"):
        ModelProblem(size, "bf16", CPU)
