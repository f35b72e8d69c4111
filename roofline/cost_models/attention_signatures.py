"""Where attention operators keep their arguments: the table attention_signatures.toml."""

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec


class AttentionSignature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where operators called `names` keep their arguments, as positions in their schema.

    Keys and values follow the query. None: the operator has no such argument.
    """

    names: tuple[str, ...]
    source: str
    # The operator does its work by calling another one, where there is one.
    composite: bool = False
    # bhsd: batch, heads, sequence, head size; bshd: batch, sequence, heads, head size.
    layout: Literal["bhsd", "bshd"]
    causal: int | None = None
    # An integer argument: 0 no mask, 1 causal from the top left, 2 from the bottom right.
    mask_type: int | None = None
    bottom_right: bool = False
    bias: int | None = None
    # Whether the log-sum-exp is written: always, never, or by the flag at a position.
    log_sum_exp: bool | int = True
    # Cumulative sequence lengths of packed sequences, and their maxima; keys' follow queries'.
    starts: int | None = None
    maxima: int | None = None
    # window_size_left; window_size_right follows.
    window: int | None = None
    # The argument whose presence means that keys and values stand in a cache of pages, in any
    # order: (..., heads, head size).
    pages: int | None = None
    # Arguments whose presence hides how many keys are read (used lengths; not those of pages).
    unknown_if_present: tuple[int, ...] = ()
    backward: bool = False
    query: int = 0
    # Backward only: the forward's output and log-sum-exp.
    saved: tuple[int, int] | None = None


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operator: tuple[AttentionSignature, ...]


@cache
def attention_signatures() -> tuple[AttentionSignature, ...]:
    """All rows of the table, read once."""
    text = files("gpuprof.roofline.cost_models").joinpath("attention_signatures.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).operator
