"""Bytes that one GPU holds: parameters, gradients, optimizer states and activations.

States: Rajbhandari et al. 2020 (ZeRO), section 5. Activations: each tensor that the backward pass
needs, as Korthikanti et al. 2022 ("Reducing Activation Recomputation in Large Transformer Models",
section 4) count them; for their model (GELU, dropout, as many key heads as heads, an inner width of
4 h) the sum is their s b h (34 + 5 a s / h).
"""

from dataclasses import dataclass

from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import ParallelLayout, TrainingJob
from gpuprof.roofline.plan_figures import PlannedMemory

_FP32 = 4


@dataclass(frozen=True)
class StageParameters:
    """Parameters of one pipeline stage on one GPU, before ZeRO divides them."""

    # Of one layer: what each data-parallel rank has alike, and its own experts.
    layer: int
    experts: int
    layers: int
    # Embedding, last norm and head: those that the stage has.
    ends: int

    @property
    def shared(self) -> int:
        """What all ranks of the data-parallel group have alike."""
        return self.layer * self.layers + self.ends

    @property
    def own_experts(self) -> int:
        """Experts, which only every e-th rank of the group has alike."""
        return self.experts * self.layers


def stage_parameters(decoder: DecoderShape, layout: ParallelLayout, stage: int) -> StageParameters:
    """Parameters on a GPU of pipeline stage `stage`, 0 the first."""
    first, last = stage == 0, stage == layout.pipeline - 1
    embedding = decoder.embedding_parameters(layout.tensor) if first else 0
    head = decoder.head_parameters(layout.tensor, copied=not first) if last else 0
    return StageParameters(
        layer=decoder.layer_parameters(layout.tensor),
        experts=decoder.expert_parameters(layout.tensor, layout.expert),
        layers=decoder.layers // layout.pipeline,
        ends=embedding + head,
    )


def stage_memory(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, stage: int
) -> PlannedMemory:
    """Bytes on a GPU of pipeline stage `stage`. Of what is temporary only ZeRO's is in it."""
    held = stage_parameters(decoder, layout, stage)
    whole = held.shared + held.own_experts
    divided = _ceil(held.shared, layout.data) + _ceil(
        held.own_experts, layout.data // layout.expert
    )
    unit = held.layer + held.experts
    gathered = 0
    if layout.zero >= 2:
        # Gradients are whole until they are reduced: those of one layer, or of both ends.
        gathered += max(unit, held.ends) * job.gradient_bytes
    if layout.zero == 3:
        # The layer that computes and the next, and the ends, which stay gathered.
        gathered += (min(2, held.layers) * unit + held.ends) * job.parameter_bytes
    return PlannedMemory(
        parameters_bytes=(divided if layout.zero == 3 else whole) * job.parameter_bytes,
        gradients_bytes=(divided if layout.zero >= 2 else whole) * job.gradient_bytes,
        optimizer_bytes=(divided if layout.zero >= 1 else whole) * job.optimizer_bytes,
        gathered_bytes=gathered,
        activations_bytes=_stage_activations(decoder, job, layout, stage),
    )


def layer_activations(decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout) -> int:
    """Bytes that one layer keeps of one micro-batch, nothing recomputed but what is selective."""
    tokens = job.sequence * layout.micro_batch
    tensor, outside, element = layout.tensor, layout.outside, job.activation_bytes
    stream = tokens * decoder.hidden * element // outside
    # The inputs of both norms; the input of the query, key and value products.
    kept = 3 * stream
    query = tokens * decoder.attention_width * element // tensor
    # Queries, keys, values, and the input of the output product.
    kept += 2 * query + 2 * tokens * decoder.key_width(tensor) * element
    if job.fused_attention:
        # The logarithm of each row's sum of exponentials.
        kept += tokens * decoder.heads * _FP32 // tensor
    elif layout.checkpointing != "selective":
        scores = tokens * job.sequence * decoder.heads // tensor
        # The softmax; with dropout its mask and its result.
        kept += scores * (2 * element + 1 if decoder.dropout else element)
    if decoder.dropout:
        # A mask after attention and one after the MLP, a byte an element.
        kept += 2 * tokens * decoder.hidden // outside
    return kept + _mlp_activations(decoder, job, layout, tokens)


def _mlp_activations(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, tokens: int
) -> int:
    element, outside = job.activation_bytes, layout.outside
    stream = tokens * decoder.hidden * element
    # With a gate: its product, its activation, the other product, and what both give.
    inner = (4 if decoder.gated else 2) * tokens * decoder.inner * element // layout.tensor
    if decoder.experts == 1:
        return stream // outside + inner
    # The router's input and probabilities, the tokens sent to experts, which ranks that divide an
    # expert all have, and what comes back to be weighted.
    chosen = decoder.experts_per_token
    router = stream // outside + tokens * decoder.experts * _FP32 // outside
    return router + chosen * (stream + inner + stream // outside)


def chunks_in_flight(layout: ParallelLayout, stage: int) -> int:
    """Chunks of layers whose activations stage `stage` holds at most, each of one micro-batch.

    1F1B: p - stage micro-batches. Interleaved: the forward passes before the first backward pass,
    2 (p - stage - 1) + (v - 1) p, and one (Narayanan et al. 2021, section 2.2; of the first stage
    this is Korthikanti's L (1 + (p - 1) / (p v)) layers).
    """
    ahead = layout.pipeline - stage - 1
    if layout.chunks > 1:
        ahead = 2 * ahead + (layout.chunks - 1) * layout.pipeline
    return min(layout.micro_batches * layout.chunks, ahead + 1)


def _stage_activations(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, stage: int
) -> int:
    tokens = job.sequence * layout.micro_batch
    stream = tokens * decoder.hidden * job.activation_bytes // layout.outside
    chunks = chunks_in_flight(layout, stage)
    layers = chunks * decoder.layers // (layout.pipeline * layout.chunks)
    whole = layer_activations(decoder, job, layout)
    # Under full checkpointing one layer at a time is there whole, while it is computed again.
    kept = layers * stream + whole if layout.checkpointing == "full" else layers * whole
    if stage == 0 and decoder.dropout:
        kept += chunks * tokens * decoder.hidden // layout.outside // layout.chunks
    if stage == layout.pipeline - 1:
        # The inputs of the last norm and of the head, and the logits in fp32.
        logits = tokens * decoder.vocabulary_rows(layout.tensor) * _FP32
        kept += 2 * stream + logits
    return kept


def _ceil(number: int, parts: int) -> int:
    return -(-number // parts)
