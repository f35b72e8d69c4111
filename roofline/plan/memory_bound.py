"""Bytes of a step that move through a GPU's memory beside those of products and attention.

Of the model: the table memory_bound.toml. Of gradients and parameters: what training libraries copy
to send them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import ParallelLayout, TrainingJob
from gpuprof.roofline.plan.memory import StageParameters

_Elements = Literal["hidden", "heads", "inner", "chosen", "scores", "logits"]
_Only = Literal[
    "", "normed queries", "rotary", "gated", "not gated", "dropout", "unfused attention", "experts"
]


@dataclass(frozen=True)
class PassBytes:
    """Bytes that one micro-batch reads and writes on one pipeline stage."""

    forward: int
    backward: int
    # What checkpointing does again.
    again: int


class _Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    of: Literal["layer", "first", "last"]
    elements: _Elements
    source: str
    only: _Only = ""
    calls: int = 1
    forward: int = 0
    backward: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operation: tuple[_Operation, ...]


def memory_bound_bytes(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, stage: int
) -> PassBytes:
    """What the model's own operators move on pipeline stage `stage`, 0 the first."""
    times = {
        "layer": decoder.layers // layout.pipeline,
        "first": int(stage == 0),
        "last": int(stage == layout.pipeline - 1),
    }
    elements, element = _elements(decoder, job, layout), job.activation_bytes
    forward = backward = again = 0
    for each in _operations():
        if not _HAS[each.only](decoder, job):
            continue
        number = times[each.of] * each.calls * elements[each.elements]
        passed = number * (each.forward * element + each.forward_bytes)
        forward += passed
        backward += number * (each.backward * element + each.backward_bytes)
        selected = layout.checkpointing == "selective" and each.elements == "scores"
        if selected or (layout.checkpointing == "full" and each.of == "layer"):
            again += passed
    return PassBytes(forward, backward, again)


def copied_bytes(job: TrainingJob, layout: ParallelLayout, held: StageParameters) -> int:
    """What a step reads and writes to add up gradients, and to send them and parameters.

    Gradients are scaled into a buffer, each read and written; DDP copies their sums back, unless it
    is told gradient_as_bucket_view=True (torch/csrc/distributed/c10d/reducer.cpp). `fully_shard`
    copies gathered parameters out of a buffer, too
    (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py). Gradients of a further micro-batch
    are added to those before: two read, one written.
    """
    whole = held.shared + held.own_experts
    gradients, batches = whole * job.gradient_bytes, layout.micro_batches
    # Stages 2 and 3 send and divide the gradients of each micro-batch.
    sent = batches if layout.zero >= 2 else 1
    kept = gradients // layout.data if layout.zero >= 2 else gradients
    moved = 3 * (batches - 1) * kept
    if layout.data > 1:
        moved += (2 if layout.zero else 4) * sent * gradients
    if layout.zero == 3:
        gathered = 2 * (held.layer + held.experts) * held.layers + held.ends
        moved += 2 * batches * gathered * job.parameter_bytes
    return moved


def _elements(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout
) -> Mapping[_Elements, int]:
    tokens, tensor = job.sequence * layout.micro_batch, layout.tensor
    hidden = tokens * decoder.hidden // layout.outside
    return {
        "hidden": hidden,
        "heads": tokens * (decoder.attention_width // tensor + decoder.key_width(tensor)),
        "inner": decoder.experts_per_token * tokens * decoder.inner // tensor,
        "chosen": decoder.experts_per_token * hidden,
        "scores": tokens * job.sequence * decoder.heads // tensor,
        "logits": tokens * decoder.vocabulary_rows(tensor),
    }


_HAS: Final[Mapping[_Only, Callable[[DecoderShape, TrainingJob], bool]]] = {
    "": lambda decoder, job: True,
    "normed queries": lambda decoder, job: decoder.normed_queries,
    # A model without a table of positions turns its queries and keys.
    "rotary": lambda decoder, job: not decoder.positions,
    "gated": lambda decoder, job: decoder.gated,
    "not gated": lambda decoder, job: not decoder.gated,
    "dropout": lambda decoder, job: decoder.dropout,
    "unfused attention": lambda decoder, job: not job.fused_attention,
    "experts": lambda decoder, job: decoder.experts > 1,
}


@cache
def _operations() -> tuple[_Operation, ...]:
    text = files("gpuprof.roofline.plan").joinpath("memory_bound.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).operation
