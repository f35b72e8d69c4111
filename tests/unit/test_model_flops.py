"""Closed forms against cases whose answers are known."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuprof.roofline.utilization.model_flops import (
    TransformerSize,
    hardware_flops,
    key_value_bytes,
    model_flops,
    weight_bytes,
)

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "mfu-config"


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    """Inputs and answers by name of the case."""
    if not CASES.exists():
        pytest.skip("the shared cases are not beside this checkout")
    answers = json.loads((CASES / "numbers.json").read_text())
    cases = json.loads((CASES / "cases.json").read_text())
    return {case["id"]: (case, answers[case["id"]]) for case in cases}


def test_a_dense_model_is_6n_without_its_embedding_plus_attention(numbers: dict[str, Any]) -> None:
    case, answer = numbers["dense"]
    size = TransformerSize(
        parameters=case["params"],
        embedding_parameters=case["embedding_params"],
        layers=case["layers"],
        attention_width=case["heads"] * case["head_dim"],
        keys=case["seq"],
    )
    flops = model_flops(size, "training")
    assert flops.full == answer["flops_per_token_full"]
    assert flops.causal_half == answer["flops_per_token_causal_half"]
    rate = case["tokens_per_s_per_gpu"] / case["peak"]
    assert flops.full * rate == pytest.approx(answer["mfu_full"], rel=1e-12)
    assert flops.causal_half * rate == pytest.approx(answer["mfu_causal_half"], rel=1e-12)


def test_a_mixture_counts_the_parameters_that_a_token_meets(numbers: dict[str, Any]) -> None:
    case, answer = numbers["moe"]
    size = TransformerSize(
        parameters=int(case["total_params"]), active_parameters=int(case["active_params"])
    )
    rate = case["tokens_per_s_per_gpu"] / case["peak"]
    assert model_flops(size, "training").full * rate == pytest.approx(answer["mfu"], rel=1e-12)


def test_frozen_weights_have_no_gradient_of_their_own(numbers: dict[str, Any]) -> None:
    case, answer = numbers["lora"]
    size = TransformerSize(
        parameters=int(case["base_params"]), adapter_parameters=int(case["adapter_params"])
    )
    rate = case["tokens_per_s_per_gpu"] / case["peak"]
    assert model_flops(size, "training").full * rate == pytest.approx(answer["mfu"], rel=1e-12)


def test_full_checkpointing_executes_a_third_more() -> None:
    size = TransformerSize(parameters=1000, layers=2, attention_width=10, keys=50)
    model, hardware = model_flops(size, "training"), hardware_flops(size)
    assert (model.weights, model.attention) == (6 * 1000, 12 * 2 * 10 * 50)
    assert hardware.full * 3 == model.full * 4


def test_grouped_queries_save_bytes_and_no_operations() -> None:
    size = TransformerSize(parameters=1000, layers=2, attention_width=64, key_width=16, keys=100)
    assert model_flops(size, "decode").attention == 4 * 2 * 64 * 100
    assert key_value_bytes(size, sequences=3, bits=16) == 2 * 2 * 16 * 100 * 3 * 2


def test_decoding_reads_every_weight_of_a_dense_model_once() -> None:
    size = TransformerSize(parameters=1000, embedding_parameters=100)
    assert weight_bytes(size, sequences=1, bits=16) == 1800
    assert weight_bytes(size, sequences=64, bits=4) == 450


def test_decoding_reads_the_experts_that_its_tokens_can_choose() -> None:
    # 8 experts of 100, 2 a token, 40 shared by all.
    size = TransformerSize(parameters=840, active_parameters=240, experts=8, experts_per_token=2)
    read = [weight_bytes(size, sequences, bits=8) for sequences in (1, 2, 3, 4, 64)]
    assert read == [240, 440, 640, 840, 840]


def test_without_the_number_of_experts_only_one_tokens_bytes_are_known() -> None:
    size = TransformerSize(parameters=840, active_parameters=240)
    assert weight_bytes(size, sequences=1, bits=8) == 240
    assert weight_bytes(size, sequences=2, bits=8) is None
