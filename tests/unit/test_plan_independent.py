"""Plans beside a calculation of another kind: each tensor of a rank is listed, each message sent.

Of `gpuprof.roofline.plan` only the layouts that are tried are used, and what is compared.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest

from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import (
    LayoutChoices,
    ParallelLayout,
    TrainingJob,
    possible_layouts,
)
from gpuprof.roofline.plan.memory import stage_memory
from gpuprof.roofline.plan.transfers import stage_transfers

HEADS = {"key_heads": 8, "head_size": 128}
# With the parameters that their publishers state.
MODELS = {
    "Llama 2 7B": (
        DecoderShape(
            **{"layers": 32, "hidden": 4096, "heads": 32, "key_heads": 32, "head_size": 128},
            inner=11008,
            vocabulary=32000,
        ),
        6_738_415_616,
    ),
    "Llama 2 70B": (
        DecoderShape(
            **{"layers": 80, "hidden": 8192, "heads": 64, **HEADS}, inner=28672, vocabulary=32000
        ),
        68_976_648_192,
    ),
    "Llama 3.2 1B": (
        DecoderShape(
            **{"layers": 16, "hidden": 2048, "heads": 32, "key_heads": 8, "head_size": 64},
            inner=8192,
            vocabulary=128256,
            tied=True,
        ),
        1_235_814_400,
    ),
    "Mixtral 8x7B": (
        DecoderShape(
            **{"layers": 32, "hidden": 4096, "heads": 32, **HEADS},
            inner=14336,
            vocabulary=32000,
            experts=8,
            experts_per_token=2,
        ),
        46_702_792_704,
    ),
    "Qwen3 8B": (
        DecoderShape(
            **{"layers": 36, "hidden": 4096, "heads": 32, **HEADS},
            inner=12288,
            vocabulary=151936,
            normed_queries=True,
        ),
        8_190_735_360,
    ),
}
JOB = TrainingJob(sequence=2048, batch=64)
CHOICES = LayoutChoices(
    tensor=(1, 2, 4), pipeline=(1, 2, 4), micro_batch=(1, 2), checkpointing=("none", "full")
)
# Kinds of parameters: divided over the tensor group, the same on all of it, at an end, an expert's.
DIVIDED, ALIKE, END, EXPERT = "divided", "alike", "end", "expert"


def tensors(model: DecoderShape, layout: ParallelLayout, stage: int) -> Iterator[tuple[str, int]]:
    """Kind and elements of each tensor on the first GPU of a stage."""
    t, width, size = layout.tensor, model.hidden, model.head_size
    heads = [head for head in range(model.heads) if head * t // model.heads == 0]
    keys = [key for key in range(model.key_heads) if key * t // model.key_heads == 0]
    inner = model.inner // t
    rows = -(-model.vocabulary // t)
    if stage == 0:
        yield END, rows * width
    for layer in range(model.layers):
        if layer * layout.pipeline // model.layers != stage:
            continue
        yield from [(ALIKE, width)] * 2
        if model.normed_queries:
            yield from [(ALIKE, size)] * 2
        yield from [(DIVIDED, width * size * len(heads))] * 2
        yield from [(DIVIDED, width * size * len(keys))] * 2
        if model.experts == 1:
            yield from [(DIVIDED, width * inner)] * 3
            continue
        yield ALIKE, width * model.experts
        for expert in range(model.experts):
            if expert * layout.expert // model.experts == 0:
                yield from [(EXPERT, width * inner)] * 3
    if stage == layout.pipeline - 1:
        yield END, width
        if not model.tied or layout.pipeline > 1:
            yield END, rows * width


def most_in_flight(layout: ParallelLayout, stage: int) -> int:
    """Chunks between their forward and backward pass, as Megatron-LM's schedules run them."""
    left = layout.pipeline - stage - 1
    before = left if layout.chunks == 1 else 2 * left + (layout.chunks - 1) * layout.pipeline
    order = min(before, layout.micro_batches * layout.chunks) * [1]
    order += (layout.micro_batches * layout.chunks - len(order)) * [1, -1]
    held = most = 0
    for change in order:
        held += change
        most = max(most, held)
    return most


def held(model: DecoderShape, layout: ParallelLayout, stage: int) -> dict[str, float]:
    """Bytes by what they are for, 2 a parameter, gradient and activation, 12 of Adam."""
    of_kind: Counter[str] = Counter()
    for kind, elements in tensors(model, layout, stage):
        of_kind[kind] += elements
    shared, experts = of_kind.total() - of_kind[EXPERT], of_kind[EXPERT]
    part = -(-shared // layout.data) + -(-experts // (layout.data // layout.expert))
    layers = model.layers // layout.pipeline
    layer = (of_kind.total() - of_kind[END]) // layers
    gathered = max(layer, of_kind[END]) if layout.zero >= 2 else 0
    if layout.zero == 3:
        gathered += layer * min(2, layers) + of_kind[END]
    tokens, t = JOB.sequence * layout.micro_batch, layout.tensor
    outside = t if layout.sequence_parallel else 1
    stream = 2 * tokens * model.hidden
    kept = [stream / outside] * 4
    keys = max(1, model.key_heads // t)
    kept += [2 * tokens * model.head_size * heads for heads in (model.heads / t,) * 2 + (keys,) * 2]
    kept.append(4 * tokens * model.heads / t)
    inner = 4 * 2 * tokens * model.inner / t
    if model.experts == 1:
        kept.append(inner)
    else:
        kept.append(4 * tokens * model.experts / outside)
        kept += [stream, inner, stream / outside] * model.experts_per_token
    chunks = most_in_flight(layout, stage) * layers // layout.chunks
    activations = chunks * sum(kept)
    if layout.checkpointing == "full":
        activations = chunks * stream / outside + sum(kept)
    if stage == layout.pipeline - 1:
        activations += 2 * stream / outside + 4 * tokens * -(-model.vocabulary // t)
    return {
        "parameters_bytes": 2 * (part if layout.zero == 3 else of_kind.total()),
        "gradients_bytes": 2 * (part if layout.zero >= 2 else of_kind.total()),
        "optimizer_bytes": 12 * (part if layout.zero else of_kind.total()),
        "gathered_bytes": 2 * gathered,
        "activations_bytes": activations,
    }


def messages(
    model: DecoderShape, layout: ParallelLayout, stage: int
) -> Iterator[tuple[str, str, int, int]]:
    """Group, collective, ranks and bytes of each message of a step, one after the other."""
    t, p, last = layout.tensor, layout.pipeline, stage == layout.pipeline - 1
    tokens = JOB.sequence * layout.micro_batch
    stream = 2 * tokens * model.hidden
    part = stream // t if layout.sequence_parallel else stream
    summed = ("all-gather", "reduce-scatter") if layout.sequence_parallel else ("all-reduce",)
    passes = (
        ["forward", "again", "backward"]
        if layout.checkpointing == "full"
        else ["forward", "backward"]
    )
    for _ in range(layout.micro_batches):
        for one in passes * (model.layers // p):
            # Attention, and the MLP or each expert that a token has.
            for _ in range(1 + model.experts_per_token):
                yield from (("tensor", kind, t, stream) for kind in summed)
                if one == "backward" and layout.sequence_parallel:
                    yield "tensor", "all-gather", t, stream
            if model.experts > 1:
                yield from [("expert", "all-to-all", layout.expert, 2 * part)] * 2
        for _ in range((stage == 0) + last):
            yield from (("tensor", kind, t, stream) for kind in summed)
        if last:
            yield from [("tensor", "all-reduce", t, 4 * tokens)] * 3
        for chunk in range(stage, p * layout.chunks, p):
            sends = (chunk > 0) + (chunk < p * layout.chunks - 1)
            yield from [("pipeline", "send", p, part)] * sends
    listed = list(tensors(model, layout, stage))
    alike = sum(elements for kind, elements in listed if kind == ALIKE)
    if layout.sequence_parallel:
        yield "tensor", "all-reduce", t, 2 * (alike + (model.hidden if last else 0))
    elif model.normed_queries:
        yield "tensor", "all-reduce", t, 2 * 2 * model.head_size * model.layers // p
    if model.tied and p > 1 and (last or stage == 0):
        yield "embedding", "all-reduce", 2, 2 * -(-model.vocabulary // t) * model.hidden
    for kind, elements in listed:
        group, ranks = "data", layout.data
        if kind == EXPERT and layout.expert > 1:
            group, ranks = "expert data", layout.data // layout.expert
        times = 1 if layout.zero < 2 else layout.micro_batches
        reduced = "reduce-scatter" if layout.zero else "all-reduce"
        yield group, reduced, ranks, 2 * elements * times
        # fully_shard gathers a layer for each pass, and keeps the ends between them.
        gathers = layout.micro_batches * (1 if kind == END else 2) if layout.zero == 3 else 1
        yield group, "all-gather", ranks, 2 * elements * gathers if layout.zero else 0


@pytest.mark.parametrize("name", MODELS)
def test_memory_and_messages_are_those_of_a_step_played_out(name: str) -> None:
    model, parameters = MODELS[name]
    assert model.parameters == parameters
    layouts = list(possible_layouts(model, JOB, 16, 8, CHOICES))
    assert {layout.zero for layout in layouts} == {0, 1, 2, 3}
    assert {layout.chunks for layout in layouts} >= {1, 2}
    for layout in islice(layouts, 0, None, max(1, len(layouts) // 40)):
        for stage in {0, layout.pipeline // 2, layout.pipeline - 1}:
            memory = stage_memory(model, JOB, layout, stage)
            expected = held(model, layout, stage)
            planned = {key: getattr(memory, key) for key in expected}
            # Divisions of elements round.
            assert planned == pytest.approx(expected, abs=64), (layout, stage)
            sent: Counter[tuple[str, str, int]] = Counter()
            for group, kind, ranks, size in messages(model, layout, stage):
                if ranks > 1 and size:
                    sent[group, kind, ranks] += size
            found: Counter[tuple[str, str, int]] = Counter()
            for row in stage_transfers(model, JOB, layout, stage):
                found[row.group, row.kind, row.ranks] += row.total_bytes
            assert found == sent, (layout, stage)
