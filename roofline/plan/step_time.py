"""The time of one step of a layout: computing, what waits for communication, and the bubble.

Products of n tokens with P parameters take 2 n P FLOPs forward and twice that backward, attention
4 n s H Q (Chowdhery et al. 2022, appendix B); other operators take as long as they read and write
(`gpuprof.roofline.plan.memory_bound`). A pipeline of p stages that are each v chunks stands
still for (p - 1) / v micro-batches a step (Narayanan et al. 2021, section 2.2): of v = 1 and m
micro-batches that is (p - 1) / (m + p - 1) of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gpuprof.roofline.plan.cluster import PlannedCluster, ranks_in_node, transfer_ns
from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import ParallelLayout, TrainingJob
from gpuprof.roofline.plan.memory import stage_parameters
from gpuprof.roofline.plan.memory_bound import copied_bytes, memory_bound_bytes
from gpuprof.roofline.plan.transfers import stage_transfers
from gpuprof.roofline.plan_figures import PlannedTime, PlannedTransfer

# Of attention's forward FLOPs: its derivative, and the scores that a fused kernel computes again.
_BACKWARD = 2.0
_FUSED_AGAIN = 0.5
# Pairs that a causal mask keeps.
_KEPT = 0.5
# Adam's two moments in fp32: an optimizer that keeps more has a copy of the parameters too.
_MOMENTS = 8


@dataclass(frozen=True)
class StageStep:
    """One step of one pipeline stage."""

    time: PlannedTime
    transfers: tuple[PlannedTransfer, ...]
    # The step's length if nothing overlaps.
    without_overlap_ns: int


def slowest_stage(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, cluster: PlannedCluster
) -> StageStep:
    """The stage that takes longest: the first, the last, or one of those between, all alike."""
    stages = sorted({0, layout.pipeline // 2, layout.pipeline - 1})
    steps = [_stage_step(decoder, job, layout, cluster, stage) for stage in stages]
    return max(steps, key=lambda step: step.time.step_ns)


def model_flops_per_step(decoder: DecoderShape, job: TrainingJob) -> int:
    """Model FLOPs of all GPUs in one step, attention in full: the numerator of MFU."""
    attention = 4 * decoder.layers * decoder.attention_width * job.sequence
    return 3 * job.sequence * job.batch * (2 * decoder.multiplied + attention)


def _stage_step(
    decoder: DecoderShape,
    job: TrainingJob,
    layout: ParallelLayout,
    cluster: PlannedCluster,
    stage: int,
) -> StageStep:
    computed = _computing(decoder, job, layout, cluster, stage)
    streamed = _streaming(decoder, job, layout, cluster, stage)
    forward, backward = computed.forward + streamed.forward, computed.backward + streamed.backward
    recompute = computed.again + streamed.again
    held = stage_parameters(decoder, layout, stage)
    copied = copied_bytes(job, layout, held) / cluster.memory_bytes_per_s * 1e9
    transfers = tuple(
        msgspec.structs.replace(row, time_ns=round(transfer_ns(row, layout, cluster)))
        for row in stage_transfers(decoder, job, layout, stage)
    )
    tensor = _waited(transfers, "tensor")
    expert, pipeline = _waited(transfers, "expert"), _waited(transfers, "pipeline")
    again = sum(row.time_ns for row in transfers if row.group == "tensor" and row.overlapped)
    tensor += max(0.0, again - backward)
    busy = forward + backward + recompute + tensor + expert + pipeline
    data = [row for row in transfers if row.group in ("data", "expert data")]
    embedding = _waited(transfers, "embedding")
    exposed = _exposed(data, layout, forward, backward + recompute)
    all_data = sum(row.time_ns for row in data)
    hidden = all_data - exposed
    time = PlannedTime(
        compute_ns=round(computed.forward + computed.backward),
        memory_bound_ns=round(streamed.forward + streamed.backward + copied),
        recompute_ns=round(recompute),
        tensor_ns=round(tensor),
        expert_ns=round(expert),
        pipeline_ns=round(pipeline),
        bubble_ns=round(busy / layout.micro_batches * (layout.pipeline - 1) / layout.chunks),
        data_ns=round(exposed + embedding),
        slowed_ns=round(hidden * _slowed_share(data, layout, cluster) if all_data else 0.0),
        optimizer_ns=round(_optimizer_ns(job, layout, cluster, held.shared, held.own_experts)),
    )
    return StageStep(time, transfers, time.step_ns - time.slowed_ns + round(hidden))


def _slowed_share(
    rows: Iterable[PlannedTransfer], layout: ParallelLayout, cluster: PlannedCluster
) -> float:
    """By how much of the time that `rows` are hidden computing takes longer.

    As much as collectives take of the multiprocessors, for those within a node: what they take for
    a network was not measured. A program's MFU has what its own collectives cost in it.
    """
    if cluster.compute.counted == "model":
        return 0.0
    times = {True: 0, False: 0}
    for row in rows:
        near = ranks_in_node(row.group, row.ranks, layout, cluster.gpus_per_node)
        times[near == row.ranks] += row.time_ns
    return (1 - cluster.kept_beside_collectives) * times[True] / sum(times.values())


@dataclass(frozen=True)
class _Passes:
    """Times of all micro-batches, in ns: forward, backward, and what is computed again."""

    forward: float
    backward: float
    again: float

    def times(self, number: float) -> "_Passes":
        return _Passes(self.forward * number, self.backward * number, self.again * number)


def _streaming(
    decoder: DecoderShape,
    job: TrainingJob,
    layout: ParallelLayout,
    cluster: PlannedCluster,
    stage: int,
) -> _Passes:
    """What takes as long as it reads and writes; none beside a program's MFU, which has that."""
    if cluster.compute.counted == "model":
        return _Passes(0.0, 0.0, 0.0)
    moved = memory_bound_bytes(decoder, job, layout, stage)
    passes = _Passes(moved.forward, moved.backward, moved.again)
    return passes.times(layout.micro_batches / cluster.memory_bytes_per_s * 1e9)


def _computing(
    decoder: DecoderShape,
    job: TrainingJob,
    layout: ParallelLayout,
    cluster: PlannedCluster,
    stage: int,
) -> _Passes:
    """Products and attention."""
    tokens = job.sequence * layout.micro_batch
    layers = decoder.layers // layout.pipeline
    mlps = decoder.experts_per_token * decoder.mlp_matrices(layout.tensor)
    router = decoder.router // layout.outside
    in_layers = layers * (decoder.attention_matrices(layout.tensor) + mlps + router)
    last = stage == layout.pipeline - 1
    head = decoder.vocabulary_rows(layout.tensor) * decoder.hidden if last else 0
    rate = cluster.compute
    products = 2 * tokens * in_layers / rate.products * 1e9
    logits = 2 * tokens * head / rate.products * 1e9
    width = decoder.attention_width // layout.tensor
    pairs = 4.0 * tokens * job.sequence * width * layers
    going_back = _BACKWARD
    if rate.counted == "executed":
        pairs *= _KEPT
        going_back += _FUSED_AGAIN if job.fused_attention else 0.0
    scores = pairs / rate.attention * 1e9
    again = {"none": 0.0, "selective": scores, "full": products + scores}[layout.checkpointing]
    forward = products + logits + scores
    derived = going_back * pairs / rate.attention_backward * 1e9
    backward = 2 * (products + logits) + derived
    return _Passes(forward, backward, again).times(layout.micro_batches)


def _waited(transfers: Iterable[PlannedTransfer], group: str) -> float:
    return sum(row.time_ns for row in transfers if row.group == group and row.overlapped is None)


def _exposed(
    rows: Iterable[PlannedTransfer], layout: ParallelLayout, forward: float, backward: float
) -> float:
    """What of `rows` is longer than the computing that it can overlap with, at the least.

    The last gradients are there once nothing is left to compute: their message waits for none.
    """
    times = {
        "last backward pass": 0.0,
        "first forward pass": 0.0,
        "backward passes": 0.0,
        "computing": 0.0,
    }
    last = {"last backward pass": 0.0, "backward passes": 0.0}
    for row in rows:
        assert row.overlapped is not None
        times[row.overlapped] += row.time_ns
        if row.overlapped in ("last backward pass", "backward passes"):
            last[row.overlapped] += row.time_ns / row.calls
    summed = times["backward passes"]
    anywhere = times["computing"] + summed - forward - backward
    return (
        max(
            last["last backward pass"],
            times["last backward pass"] - backward / layout.micro_batches,
        )
        + max(0.0, times["first forward pass"] - forward / layout.micro_batches)
        + max(last["backward passes"], summed - backward, anywhere)
    )


def _optimizer_ns(
    job: TrainingJob, layout: ParallelLayout, cluster: PlannedCluster, shared: int, experts: int
) -> float:
    """Reading and writing the optimizer's states; reading gradients and writing parameters.

    Parameters of which the states hold no copy are read too.
    """
    if layout.zero:
        shared = -(-shared // layout.data)
        experts = -(-experts * layout.expert // layout.data)
    read = job.parameter_bytes if job.optimizer_bytes <= _MOMENTS else 0
    moved = 2 * job.optimizer_bytes + job.gradient_bytes + job.parameter_bytes + read
    return (shared + experts) * moved / cluster.optimizer_bytes_per_s * 1e9
