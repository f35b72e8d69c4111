"""Decoders from config.json: as many parameters as transformers itself builds."""

from typing import Any

import pytest

from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.families import decoder_of_config


def config(model_type: str, hidden: int, inner: int, layers: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "tie_word_embeddings": False,
        **more,
    }


def heads(query: int, key: int, vocabulary: int) -> dict[str, int]:
    return {
        "num_attention_heads": query,
        "num_key_value_heads": key,
        "vocab_size": vocabulary,
    }


# Counted as sum(p.numel()) of AutoModelForCausalLM.from_config, transformers 4.57, on device meta.
COUNTED = {
    "Llama-2-7B": (6_738_415_616, config("llama", 4096, 11008, 32, **heads(32, 32, 32000))),
    "Llama-3-8B": (8_030_261_248, config("llama", 4096, 14336, 32, **heads(32, 8, 128256))),
    "Mistral-7B": (7_241_732_096, config("mistral", 4096, 14336, 32, **heads(32, 8, 32000))),
    "Mixtral-8x7B": (
        46_702_792_704,
        config(
            "mixtral",
            4096,
            14336,
            32,
            num_local_experts=8,
            num_experts_per_tok=2,
            **heads(32, 8, 32000),
        ),
    ),
    "Qwen2-7B": (7_615_616_512, config("qwen2", 3584, 18944, 28, **heads(28, 4, 152064))),
    "Qwen3-0.6B": (
        596_049_920,
        config("qwen3", 1024, 3072, 28, head_dim=128, **heads(16, 8, 151936))
        | {"tie_word_embeddings": True},
    ),
    "Qwen3-30B-A3B": (
        30_532_122_624,
        config(
            "qwen3_moe",
            2048,
            6144,
            48,
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=768,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            **heads(32, 4, 151936),
        ),
    ),
    "Gemma-7B": (
        8_537_680_896,
        config("gemma", 3072, 24576, 28, head_dim=256, **heads(16, 16, 256000))
        | {"tie_word_embeddings": True},
    ),
    "Phi-3-mini": (3_821_079_552, config("phi3", 3072, 8192, 32, **heads(32, 32, 32064))),
    "GPT-2": (
        124_439_808,
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "n_inner": None,
            "vocab_size": 50257,
        },
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_config_has_as_many_parameters_as_the_model_it_builds(name: str) -> None:
    parameters, description = COUNTED[name]
    assert decoder_of_config(description).parameters == parameters


def test_parts_on_each_rank_add_up_to_the_model_but_for_what_each_has_whole() -> None:
    decoder = decoder_of_config(COUNTED["Mixtral-8x7B"][1])
    parts = [decoder.layer_parameters(4), decoder.expert_parameters(4, expert=2)]
    # Norms and the router are on all four ranks.
    repeated = 3 * (decoder.norm_parameters + decoder.router)
    assert 4 * parts[0] - repeated == decoder.layer_parameters()
    assert 4 * 2 * parts[1] == decoder.expert_parameters()
    # Eight key heads over sixteen ranks: each rank has one, so each head is there twice.
    assert 16 * decoder.key_width(16) == 2 * decoder.key_width()


def test_active_matrices_of_a_mixture_are_those_of_two_experts() -> None:
    decoder = decoder_of_config(COUNTED["Mixtral-8x7B"][1])
    # Q, O: 4096 x 4096; K, V: 4096 x 1024; two experts of three matrices; router; head.
    layer = 2 * 4096 * (4096 + 1024) + 2 * 3 * 4096 * 14336 + 4096 * 8
    assert decoder.multiplied == 32 * layer + 4096 * 32000


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "deepseek_v3"}, "model_type 'deepseek_v3' is not known"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, no positive whole number"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"mlp_only_layers": [0]}, "mlp_only_layers: layers that differ"),
    ],
)
def test_what_is_not_known_of_a_config_is_said(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decoder_of_config(COUNTED["Llama-2-7B"][1] | changed)


def test_biases_that_a_config_turns_on_are_counted() -> None:
    base = COUNTED["Llama-2-7B"][1]
    plain, biased = (
        decoder_of_config(base),
        decoder_of_config(base | {"attention_bias": True, "mlp_bias": True}),
    )
    by_layer = 4 * 4096 + 2 * 11008 + 4096
    assert biased.parameters - plain.parameters == 32 * by_layer
    assert isinstance(plain, DecoderShape)
