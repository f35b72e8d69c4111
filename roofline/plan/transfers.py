"""What one GPU communicates in a step: which collective, in which group, how many bytes.

Tensor parallelism: Shoeybi et al. 2019 (Megatron-LM), section 3; with sequence parallelism
Korthikanti et al. 2022, section 4.2.2. ZeRO: Rajbhandari et al. 2020, section 7, with the layout of
units of torch's fully_shard. Pipelines: Narayanan et al. 2021. Experts: Lepikhin et al. 2020
(GShard). A message is the whole buffer, as nccl-tests counts it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import ParallelLayout, TrainingJob
from gpuprof.roofline.plan.memory import StageParameters, stage_parameters
from gpuprof.roofline.plan_figures import Overlapped, PlannedTransfer, TransferGroup, TransferKind

# Gradients that DistributedDataParallel, and others after it, send at once.
_BUCKET_BYTES = 25 * 2**20
_FP32 = 4


class _Group(NamedTuple):
    name: TransferGroup
    ranks: int


def stage_transfers(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, stage: int
) -> tuple[PlannedTransfer, ...]:
    """What a GPU of pipeline stage `stage` communicates in one step; nothing of one rank."""
    rows = (
        *_tensor(decoder, job, layout, stage),
        *_experts(decoder, job, layout),
        *_pipeline(decoder, job, layout, stage),
        *_data(decoder, job, layout, stage),
    )
    return tuple(row for row in rows if row.ranks > 1 and row.calls and row.total_bytes)


def _row(
    what: str,
    kind: TransferKind,
    group: _Group,
    calls: int,
    total_bytes: int,
    overlapped: Overlapped | None = None,
) -> PlannedTransfer:
    return PlannedTransfer(
        what=what,
        kind=kind,
        group=group.name,
        ranks=group.ranks,
        calls=calls,
        total_bytes=total_bytes,
        overlapped=overlapped,
    )


def _tensor(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, stage: int
) -> Iterator[PlannedTransfer]:
    group = _Group("tensor", layout.tensor)
    tokens = job.sequence * layout.micro_batch
    stream = tokens * decoder.hidden * job.activation_bytes
    # One for attention and one for the MLP; experts that are divided need each token they process.
    messages = 1 + decoder.experts_per_token
    layers = decoder.layers // layout.pipeline * layout.micro_batches
    # Forward and backward pass, and the forward pass again.
    passes = 3 if layout.checkpointing == "full" else 2
    sent = passes * layers * messages * stream
    calls = passes * layers * 2
    ends = (stage == 0) + (stage == layout.pipeline - 1)
    at_ends = ends * layout.micro_batches
    if layout.sequence_parallel:
        yield _row("layers", "all-gather", group, calls, sent)
        yield _row("layers", "reduce-scatter", group, calls, sent)
        again = layers * messages * stream
        yield _row("inputs again", "all-gather", group, 2 * layers, again, "computing")
        # The embedding scatters forward and gathers backward, the head the other way round.
        yield _row("embedding and head", "all-gather", group, at_ends, at_ends * stream)
        yield _row("embedding and head", "reduce-scatter", group, at_ends, at_ends * stream)
        # Each rank has them of its tokens alone.
        undivided = decoder.layers // layout.pipeline * decoder.undivided
        if stage == layout.pipeline - 1:
            undivided += decoder.norm_vectors * decoder.hidden
    else:
        # Each rank has them of its heads alone.
        undivided = decoder.layers // layout.pipeline * decoder.norms_by_head
        yield _row("layers", "all-reduce", group, calls, sent)
        yield _row("embedding and head", "all-reduce", group, at_ends, at_ends * stream)
    gradients = undivided * job.gradient_bytes
    yield _row("gradients of undivided parameters", "all-reduce", group, 1, gradients)
    if stage == layout.pipeline - 1:
        # The largest logit, the sum of exponentials and the target's logit of each token.
        calls = 3 * layout.micro_batches
        yield _row("loss", "all-reduce", group, calls, calls * tokens * _FP32)


def _experts(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout
) -> Iterator[PlannedTransfer]:
    tokens = job.sequence * layout.micro_batch * decoder.experts_per_token
    message = tokens * decoder.hidden * job.activation_bytes // layout.outside
    passes = 3 if layout.checkpointing == "full" else 2
    # To the experts and back.
    calls = 2 * passes * decoder.layers // layout.pipeline * layout.micro_batches
    group = _Group("expert", layout.expert)
    yield _row("tokens to experts and back", "all-to-all", group, calls, calls * message)


def _pipeline(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, stage: int
) -> Iterator[PlannedTransfer]:
    tokens = job.sequence * layout.micro_batch
    message = tokens * decoder.hidden * job.activation_bytes // layout.outside
    last = stage == layout.pipeline - 1
    group = _Group("pipeline", layout.pipeline)
    for what, chunks in (
        ("activations", layout.chunks - (1 if last else 0)),
        ("gradients of activations", layout.chunks - (1 if stage == 0 else 0)),
    ):
        calls = chunks * layout.micro_batches
        yield _row(what, "send", group, calls, calls * message)
    if decoder.tied and layout.pipeline > 1 and (last or stage == 0):
        embedding = decoder.vocabulary_rows(layout.tensor) * decoder.hidden * job.gradient_bytes
        both = _Group("embedding", 2)
        yield _row("gradients of the tied embedding", "all-reduce", both, 1, embedding)


def _data(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, stage: int
) -> Iterator[PlannedTransfer]:
    held = stage_parameters(decoder, layout, stage)
    whole = StageParameters(held.layer, 0, held.layers, held.ends)
    experts = StageParameters(0, held.experts, held.layers, 0)
    if layout.expert == 1:
        yield from _replicated(job, layout, held, _Group("data", layout.data), "")
        return
    yield from _replicated(job, layout, whole, _Group("data", layout.data), "")
    replicas = _Group("expert data", layout.data // layout.expert)
    yield from _replicated(job, layout, experts, replicas, " of experts")


def _replicated(
    job: TrainingJob, layout: ParallelLayout, held: StageParameters, group: _Group, of: str
) -> Iterator[PlannedTransfer]:
    """Gradients, and parameters that ZeRO divided, of what a group has alike."""
    layer = held.layer + held.experts
    total = layer * held.layers + held.ends
    gradients, parameters = total * job.gradient_bytes, total * job.parameter_bytes
    units = held.layers + (1 if held.ends else 0)
    micro_batches = layout.micro_batches
    if layout.zero == 0:
        calls = -(-gradients // _BUCKET_BYTES)
        yield _row(f"gradients{of}", "all-reduce", group, calls, gradients, "last backward pass")
        return
    # Stage 1 keeps whole gradients until the last micro-batch; after it they are always divided.
    sums = 1 if layout.zero == 1 else micro_batches
    during: Overlapped = "last backward pass" if layout.zero == 1 else "backward passes"
    calls, sent = sums * units, sums * gradients
    yield _row(f"gradients{of}", "reduce-scatter", group, calls, sent, during)
    if layout.zero < 3:
        during = "first forward pass"
        yield _row(f"parameters{of}", "all-gather", group, units, parameters, during)
        return
    # Layers are gathered for the forward and again for the backward pass; the ends stay.
    calls = micro_batches * (2 * held.layers + (1 if held.ends else 0))
    gathered = micro_batches * (2 * layer * held.layers + held.ends) * job.parameter_bytes
    yield _row(f"parameters{of}", "all-gather", group, calls, gathered, "computing")
