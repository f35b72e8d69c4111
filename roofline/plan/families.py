"""A decoder from the config.json of Hugging Face's transformers: the table families.toml."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from gpuprof.roofline.plan.decoder import DecoderShape

_Bias = Literal["query", "output", "mlp"]
_NAMES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "key_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "inner": "intermediate_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
}
# What makes some layers differ from others, with the values under which none does.
_ALIKE: Mapping[str, tuple[object, ...]] = {
    "decoder_sparse_step": (None, 1),
    "mlp_only_layers": (None, []),
}


class _Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    source: str
    gated: bool = True
    norm: Literal["RMSNorm", "LayerNorm"] = "RMSNorm"
    biases: tuple[_Bias, ...] = ()
    bias_keys: dict[str, tuple[_Bias, ...]] = {}
    normed_queries: bool = False
    learned_positions: bool = False
    tied: bool = False
    inner_ratio: int | None = None
    dropout_keys: tuple[str, ...] = ()
    names: dict[str, str] = {}


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    family: tuple[_Family, ...]


def decoder_of_config(config: Mapping[str, object]) -> DecoderShape:
    """The decoder that a config.json describes.

    Raises `ValueError` for a type that the table does not have, for a size that is missing or no
    positive whole number, and where layers differ from each other.
    """
    family = _families().get(str(config.get("model_type")))
    if family is None:
        known = ", ".join(sorted(_families()))
        raise ValueError(f"model_type {config.get('model_type')!r} is not known (known: {known})")
    for key, alike in _ALIKE.items():
        if config.get(key) not in alike:
            raise ValueError(f"{key}: layers that differ from each other are not modelled")
    sizes = _Sizes(config, {**_NAMES, **family.names})
    hidden, heads, ratio = sizes["hidden"], sizes["heads"], family.inner_ratio
    biases = set(family.biases)
    for key, added in family.bias_keys.items():
        biases.update(added if config.get(key) else ())
    return DecoderShape(
        layers=sizes["layers"],
        hidden=hidden,
        heads=heads,
        key_heads=sizes.get("key_heads", heads),
        head_size=sizes.get("head_size", hidden // heads),
        inner=sizes["inner"] if ratio is None else sizes.get("inner", ratio * hidden),
        vocabulary=sizes["vocabulary"],
        gated=family.gated,
        experts=sizes["experts"] if "experts" in family.names else 1,
        experts_per_token=sizes["experts_per_token"] if "experts" in family.names else 1,
        tied=bool(config.get("tie_word_embeddings", family.tied)),
        positions=sizes["positions"] if family.learned_positions else 0,
        query_bias="query" in biases,
        output_bias="output" in biases,
        mlp_bias="mlp" in biases,
        norm_vectors=2 if family.norm == "LayerNorm" else 1,
        normed_queries=family.normed_queries,
        dropout=any(config.get(key, True) for key in family.dropout_keys),
    )


class _Sizes:
    """The sizes of a config.json by our names for them."""

    def __init__(self, config: Mapping[str, object], names: Mapping[str, str]) -> None:
        self._config = config
        self._names = names

    def __getitem__(self, name: str) -> int:
        key = self._names[name]
        value = self._config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            found = "is missing" if value is None else f"is {value!r}, no positive whole number"
            raise ValueError(f"{key} {found}")
        return value

    def get(self, name: str, default: int) -> int:
        """The size, or `default` where the file has none."""
        return default if self._config.get(self._names[name]) is None else self[name]


@cache
def _families() -> dict[str, _Family]:
    text = files("gpuprof.roofline.plan").joinpath("families.toml").read_bytes()
    return {row.type: row for row in msgspec.toml.decode(text, type=_Table).family}
