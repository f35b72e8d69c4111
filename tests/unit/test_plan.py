"""Plans of parallel training, compared with the closed forms of the papers and small counts."""

from dataclasses import replace
from itertools import product

import msgspec
import pytest

from gpuprof.roofline.plan.cluster import (
    ComputeRate,
    PlannedCluster,
    ranks_in_node,
    transfer_ns,
)
from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import (
    LayoutChoices,
    ParallelLayout,
    TrainingJob,
    possible_layouts,
)
from gpuprof.roofline.plan.memory import (
    chunks_in_flight,
    layer_activations,
    stage_memory,
    stage_parameters,
)
from gpuprof.roofline.plan.planning import plan_training
from gpuprof.roofline.plan.step_time import model_flops_per_step, slowest_stage
from gpuprof.roofline.plan.transfers import stage_transfers
from gpuprof.roofline.plan_figures import PlannedTransfer

# The model of Megatron-LM and Korthikanti et al.: GELU, dropout, an inner width of 4 h.
S, H, A, L, V = 2048, 1024, 16, 8, 51200
MEGATRON = DecoderShape(
    **{"layers": L, "hidden": H, "heads": A, "key_heads": A, "head_size": H // A},
    inner=4 * H,
    vocabulary=V,
    gated=False,
    norm_vectors=2,
    dropout=True,
)
LLAMA = DecoderShape(
    **{"layers": 8, "hidden": 1024, "heads": 16, "key_heads": 4, "head_size": 64},
    inner=2816,
    vocabulary=32000,
)
MIXTURE = replace(LLAMA, experts=8, experts_per_token=2)
UNFUSED = TrainingJob(sequence=S, batch=32, fused_attention=False)
JOB = TrainingJob(sequence=S, batch=32)


def layout_of(job: TrainingJob = JOB, **degrees: object) -> ParallelLayout:
    made = ParallelLayout(**degrees)  # type: ignore[arg-type]
    return replace(made, micro_batches=job.batch // (made.data * made.micro_batch))


def cluster_of(nodes: int = 1, gpus: int = 8) -> PlannedCluster:
    rate = ComputeRate(
        **{"products": 500e12, "attention": 400e12, "attention_backward": 400e12},
        counted="model",
        basis="given",
        peak=1e15,
    )
    return PlannedCluster(
        device="a GPU",
        nodes=nodes,
        gpus_per_node=gpus,
        memory_bytes=80 * 2**30,
        usable_bytes=72 * 2**30,
        compute=rate,
        memory_bytes_per_s=3e12,
        optimizer_bytes_per_s=2e12,
        link_bytes_per_s=400e9,
        network_bytes_per_s=50e9,
    )


def rows(decoder: DecoderShape, layout: ParallelLayout, stage: int = 0) -> dict[str, int]:
    """Bytes of a step by what and kind."""
    found: dict[str, int] = {}
    for row in stage_transfers(decoder, JOB, layout, stage):
        found[f"{row.what}: {row.kind}"] = row.total_bytes
    return found


@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize("t", [1, 2, 8])
def test_activations_of_a_layer_are_those_of_korthikanti(t: int, b: int) -> None:
    sbh = S * b * H
    kept = {
        # Section 4.1, equations 1, 2 and 4, and table 2.
        "tensor": sbh * (10 + 24 / t + 5 * A * S / (H * t)),
        "tensor and sequence": sbh * (34 + 5 * A * S / H) / t,
        "selective": sbh * 34 / t,
    }
    plain = layout_of(tensor=t, micro_batch=b)
    sequence = replace(plain, sequence_parallel=True)
    selective = replace(sequence, checkpointing="selective")
    assert layer_activations(MEGATRON, UNFUSED, plain) == kept["tensor"]
    assert layer_activations(MEGATRON, UNFUSED, sequence) == kept["tensor and sequence"]
    assert layer_activations(MEGATRON, UNFUSED, selective) == kept["selective"]


def test_activations_of_one_stage_are_the_layers_and_the_logits() -> None:
    layout = layout_of(UNFUSED, tensor=2, sequence_parallel=True)
    per_layer = S * H * (34 + 5 * A * S / H) / 2
    # Equation 5: a dropout mask after the embedding; then 4 s b h / t (1 + v / h).
    ends = S * H / 2 + 4 * S * H / 2 * (1 + V / H)
    memory = stage_memory(MEGATRON, UNFUSED, layout, 0)
    assert memory.activations_bytes == L * per_layer + ends
    full = replace(layout, checkpointing="full")
    # Table 2: 2 s b h / t a layer; one layer is there whole while it is computed again.
    kept = stage_memory(MEGATRON, UNFUSED, full, 0).activations_bytes
    assert kept == L * 2 * S * H / 2 + per_layer + ends


@pytest.mark.parametrize(("p", "v"), [(2, 1), (4, 1), (4, 2), (2, 4), (8, 1)])
def test_the_first_stage_keeps_what_a_schedule_leaves_in_flight(p: int, v: int) -> None:
    """Counted on the schedule itself: warm-up passes, then one forward, one backward."""
    m = 4 * p
    for stage in range(p):
        warm_up = p - stage - 1 if v == 1 else 2 * (p - stage - 1) + (v - 1) * p
        passes = ["forward"] * warm_up + ["forward", "backward"] * (m * v - warm_up)
        kept = most = 0
        for one in passes:
            kept += 1 if one == "forward" else -1
            most = max(most, kept)
        layout = ParallelLayout(pipeline=p, chunks=v, micro_batches=m)
        assert chunks_in_flight(layout, stage) == most
    # Korthikanti et al., section 4.2.3: L (1 + (p - 1) / (p v)) layers on the first stage.
    if v > 1:
        first = chunks_in_flight(ParallelLayout(pipeline=p, chunks=v, micro_batches=m), 0)
        assert first * L / (p * v) == pytest.approx(L * (1 + (p - 1) / (p * v)))


def test_fewer_micro_batches_than_stages_keep_fewer_activations() -> None:
    assert chunks_in_flight(ParallelLayout(pipeline=8, micro_batches=2), 0) == 2


@pytest.mark.parametrize("data", [2, 8])
def test_zero_divides_states_as_its_paper_says(data: int) -> None:
    """Rajbhandari et al. 2020, figure 1: (2 + 2 + K) P, 4 P + K P / N, 2 P + (2 + K) P / N, ..."""
    count, k = LLAMA.parameters, 12
    expected = {
        0: (2 * count, 2 * count, k * count),
        1: (2 * count, 2 * count, k * count / data),
        2: (2 * count, 2 * count / data, k * count / data),
        3: (2 * count / data, 2 * count / data, k * count / data),
    }
    for zero, states in expected.items():
        memory = stage_memory(LLAMA, JOB, layout_of(data=data, zero=zero), 0)
        found = (memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes)
        assert found == pytest.approx(states, rel=1e-6)
        assert (memory.gathered_bytes > 0) == (zero >= 2)


def test_stages_have_all_parameters_between_them() -> None:
    layout = layout_of(pipeline=4)
    held = [stage_parameters(LLAMA, layout, stage) for stage in range(4)]
    assert sum(stage.shared + stage.own_experts for stage in held) == LLAMA.parameters
    tied = [stage_parameters(replace(LLAMA, tied=True), layout, stage) for stage in range(4)]
    # The last stage has a copy of the embedding.
    copies = sum(stage.shared for stage in tied) - replace(LLAMA, tied=True).parameters
    assert copies == LLAMA.vocabulary * LLAMA.hidden


def test_data_parallelism_sends_gradients_and_what_zero_divided() -> None:
    count, m = LLAMA.parameters, 8
    layers = 8 * LLAMA.layer_parameters()
    ends = count - layers
    assert rows(LLAMA, layout_of(data=4)) == {"gradients: all-reduce": 2 * count}
    assert rows(LLAMA, layout_of(data=4, zero=1)) == {
        "gradients: reduce-scatter": 2 * count,
        "parameters: all-gather": 2 * count,
    }
    assert rows(LLAMA, layout_of(data=4, zero=2)) == {
        "gradients: reduce-scatter": m * 2 * count,
        "parameters: all-gather": 2 * count,
    }
    assert rows(LLAMA, layout_of(data=4, zero=3)) == {
        "gradients: reduce-scatter": m * 2 * count,
        "parameters: all-gather": m * 2 * (2 * layers + ends),
    }


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_tensor_parallelism_sends_two_messages_a_layer_and_pass(checkpointing: str) -> None:
    t, m = 2, 16
    stream = 2 * S * 1024
    passes = 3 if checkpointing == "full" else 2
    plain = layout_of(tensor=t, data=2, checkpointing=checkpointing)
    found = rows(LLAMA, plain)
    assert found["layers: all-reduce"] == m * 8 * 2 * passes * stream
    # One after the embedding and one before the head.
    assert found["embedding and head: all-reduce"] == m * 2 * stream
    assert found["loss: all-reduce"] == m * 3 * S * 4
    scattered = rows(LLAMA, replace(plain, sequence_parallel=True))
    # A ring's all-reduce is a reduce-scatter and an all-gather: the same bytes in all.
    for kind in ("all-gather", "reduce-scatter"):
        assert scattered[f"layers: {kind}"] == found["layers: all-reduce"]
    assert scattered["inputs again: all-gather"] == m * 8 * 2 * stream


def test_experts_send_each_token_to_each_of_its_experts_and_back() -> None:
    layout = layout_of(data=4, expert=4)
    found = rows(MIXTURE, layout)
    m, tokens = 8, S
    sent = tokens * 2 * 1024 * 2
    assert found["tokens to experts and back: all-to-all"] == m * 8 * 4 * sent
    # Of the experts, two of eight, there is one replica: nothing to reduce.
    dense = MIXTURE.parameters - 8 * MIXTURE.expert_parameters()
    assert found["gradients: all-reduce"] == 2 * dense
    assert "gradients of experts: all-reduce" not in found
    two = rows(MIXTURE, layout_of(data=4, expert=2))
    assert two["gradients of experts: all-reduce"] == 2 * 8 * MIXTURE.expert_parameters() / 2


def test_stages_send_what_crosses_between_their_chunks() -> None:
    p, v = 4, 2
    layout = layout_of(pipeline=p, chunks=v)
    message, m = 2 * S * 1024, 32
    chunks = [chunk % p for chunk in range(p * v)]
    for stage in range(p):
        forward = sum(1 for chunk in chunks[:-1] if chunk == stage)
        backward = sum(1 for chunk in chunks[1:] if chunk == stage)
        found = rows(LLAMA, layout, stage)
        assert found.get("activations: send", 0) == m * forward * message
        assert found.get("gradients of activations: send", 0) == m * backward * message


def transfer(kind: str, group: str, ranks: int, total_bytes: int) -> PlannedTransfer:
    return PlannedTransfer(
        what="",
        kind=kind,  # type: ignore[arg-type]
        group=group,  # type: ignore[arg-type]
        ranks=ranks,
        calls=0,
        total_bytes=total_bytes,
    )


@pytest.mark.parametrize(
    ("kind", "group", "degrees", "seconds"),
    [
        # Within a node: 2 (n - 1) / n of the message over the link.
        ("all-reduce", "tensor", {"tensor": 4}, 1.5 / 400),
        ("all-gather", "data", {"data": 8}, 0.875 / 400),
        # Two nodes, eight ranks of the group in each: eight ports, as fast as the link.
        ("all-reduce", "data", {"data": 16}, 2 * 15 / 16 / 400),
        # Two ranks in each node: two ports of 50.
        ("all-reduce", "data", {"tensor": 4, "data": 4}, 1.5 / 100),
        ("reduce-scatter", "data", {"tensor": 8, "data": 2}, 0.5 / 50),
        # Half of what an all-to-all sends leaves the node, by the GPU's own port.
        ("all-to-all", "expert", {"data": 16, "expert": 16}, 0.5 / 50),
        ("all-to-all", "expert", {"data": 16, "expert": 8}, 0.875 / 400),
        ("send", "pipeline", {"pipeline": 2, "data": 8}, 1 / 50),
        ("send", "pipeline", {"pipeline": 2, "data": 4}, 1 / 400),
    ],
)
def test_a_transfer_takes_its_bus_bytes_over_the_slowest_link(
    kind: str, group: str, degrees: dict[str, int], seconds: float
) -> None:
    layout = layout_of(**degrees)
    ranks = degrees.get(group) or degrees["tensor"]
    row = transfer(kind, group, ranks, 10**9)
    assert transfer_ns(row, layout, cluster_of(nodes=2)) == pytest.approx(seconds * 1e9)


def test_ranks_in_a_node_are_those_of_consecutive_gpus() -> None:
    """Against the numbering itself: tensor first, then data, then pipeline."""
    degrees = [(t, d, p) for t, d, p in product((1, 2, 4, 8), repeat=3) if t * d * p in (32, 64)]
    for t, d, p in degrees:
        layout = ParallelLayout(tensor=t, data=d, pipeline=p)
        numbers = {
            "tensor": range(t),
            "data": [t * index for index in range(d)],
            "pipeline": [t * d * index for index in range(p)],
        }
        for group, ranks in numbers.items():
            near = ranks_in_node(group, len(ranks), layout, 8)  # type: ignore[arg-type]
            assert near == sum(1 for rank in ranks if rank < 8), (group, t, d, p)


@pytest.mark.parametrize(("p", "v"), [(1, 1), (4, 1), (4, 2)])
def test_the_bubble_is_that_of_the_schedule(p: int, v: int) -> None:
    layout = layout_of(pipeline=p, chunks=v)
    fast = replace(cluster_of(), link_bytes_per_s=1e30, memory_bytes_per_s=1e30)
    flat = replace(LLAMA, vocabulary=1)
    time = slowest_stage(flat, JOB, layout, fast).time
    m = layout.micro_batches
    busy = time.compute_ns + time.pipeline_ns
    # Narayanan et al. 2021: (p - 1) / (v m) of the ideal time.
    assert time.bubble_ns == pytest.approx(busy * (p - 1) / (v * m), rel=1e-6)
    if v == 1:
        assert time.bubble_ns / (busy + time.bubble_ns) == pytest.approx((p - 1) / (m + p - 1))


@pytest.mark.parametrize("decoder", [LLAMA, MIXTURE, MEGATRON], ids=["dense", "mixture", "gelu"])
def test_one_gpu_computes_the_model_flops_at_its_rate(decoder: DecoderShape) -> None:
    attention = 12 * decoder.layers * decoder.heads * decoder.head_size * S
    tokens = S * JOB.batch
    assert model_flops_per_step(decoder, JOB) == tokens * (6 * decoder.multiplied + attention)
    rates = dict.fromkeys(("products", "attention", "attention_backward"), 5e14)
    same = ComputeRate(**rates, counted="model", basis="", peak=1e15)
    step = slowest_stage(decoder, JOB, layout_of(), replace(cluster_of(), compute=same))
    assert step.time.compute_ns == pytest.approx(model_flops_per_step(decoder, JOB) / 5e14 * 1e9)
    # The forward pass, but for the head, once more.
    again = slowest_stage(
        decoder, JOB, layout_of(checkpointing="full"), replace(cluster_of(), compute=same)
    )
    head = 2 * tokens * decoder.hidden * decoder.vocabulary
    forward = model_flops_per_step(decoder, JOB) / 3 - head
    assert again.time.recompute_ns == pytest.approx(forward / 5e14 * 1e9)


def test_work_of_all_gpus_is_that_of_one() -> None:
    """Degrees that divide everything leave each GPU its share of the work."""
    fast = replace(cluster_of(), link_bytes_per_s=1e30)
    alone = slowest_stage(LLAMA, JOB, layout_of(), fast).time.compute_ns
    for degrees in ({"tensor": 4}, {"data": 8}, {"tensor": 2, "data": 4}):
        part = slowest_stage(LLAMA, JOB, layout_of(**degrees), fast).time.compute_ns
        gpus = degrees.get("tensor", 1) * degrees.get("data", 1)
        assert part == pytest.approx(alone / gpus, rel=1e-6)


def test_gradients_overlap_with_the_last_backward_pass_alone() -> None:
    slow = replace(cluster_of(), link_bytes_per_s=2e9, memory_bytes_per_s=1e30)
    layout = layout_of(data=8, micro_batch=1)
    step = slowest_stage(LLAMA, JOB, layout, slow)
    (row,) = step.transfers
    # Forward is a third of computing, four micro-batches.
    window = step.time.compute_ns * 2 / 3 / 4
    assert row.time_ns > window
    assert step.time.data_ns == pytest.approx(row.time_ns - window, rel=1e-6)
    assert step.without_overlap_ns == pytest.approx(step.time.step_ns + window, rel=1e-6)


def test_layouts_are_those_that_the_model_and_the_batch_allow() -> None:
    found = list(possible_layouts(MIXTURE, JOB, 16, 8, LayoutChoices()))
    assert len(found) == len(set(found)) > 100
    for layout in found:
        assert layout.gpus == 16
        assert layout.micro_batches * layout.micro_batch * layout.data == JOB.batch
        assert layout.tensor <= 8
        assert MIXTURE.layers % (layout.pipeline * layout.chunks) == 0
        assert layout.data % layout.expert == 0
        assert layout.data > 1 or not layout.zero
    given = LayoutChoices(tensor=(16,))
    assert {each.tensor for each in possible_layouts(MIXTURE, JOB, 16, 8, given)} == {16}


def test_a_plan_ranks_what_fits_and_says_what_was_tried() -> None:
    plan = plan_training(LLAMA, JOB, cluster_of(), LayoutChoices())
    assert 0 < plan.fitting <= plan.tried
    steps = [layout.step_ns for layout in plan.layouts]
    assert steps == sorted(steps)
    assert all(layout.total_bytes <= plan.usable_bytes for layout in plan.layouts)
    first = plan.layouts[0]
    assert first.mfu is not None
    flops = model_flops_per_step(LLAMA, JOB)
    assert first.mfu == pytest.approx(flops / 8 / 1e15 / (first.step_ns / 1e9))
    crowded = replace(cluster_of(), usable_bytes=2**20)
    nothing = plan_training(LLAMA, JOB, crowded, LayoutChoices())
    assert nothing.layouts == ()
    assert nothing.smallest is not None
    assert not nothing.smallest.fits


def test_a_batch_that_no_layout_divides_is_an_error() -> None:
    with pytest.raises(ValueError, match="a batch of 3 sequences over 7 GPUs"):
        plan_training(LLAMA, replace(JOB, batch=3), cluster_of(gpus=7), LayoutChoices())


def test_zero_3_gathers_two_layers_and_the_ends() -> None:
    memory = stage_memory(LLAMA, JOB, layout_of(data=8, zero=3), 0)
    layer = LLAMA.layer_parameters()
    ends = LLAMA.parameters - 8 * layer
    # And the gradients of one unit before they are divided: the ends are the larger one.
    assert ends > layer
    assert memory.gathered_bytes == 2 * (2 * layer + ends) + 2 * ends
    one_layer = stage_memory(replace(LLAMA, layers=1), JOB, layout_of(data=8, zero=3), 0)
    assert one_layer.gathered_bytes == 2 * (layer + ends) + 2 * ends


@pytest.mark.parametrize("zero", [0, 1])
def test_the_optimizer_reads_and_writes_its_states(zero: int) -> None:
    step = slowest_stage(MIXTURE, JOB, layout_of(data=8, expert=4, zero=zero), cluster_of())
    dense = MIXTURE.parameters - 8 * MIXTURE.expert_parameters()
    experts = 8 * MIXTURE.expert_parameters() / 4
    owned = dense / 8 + experts / 2 if zero else dense + experts
    # 12 bytes of states both ways, 2 of gradients read and 2 of parameters written.
    assert step.time.optimizer_ns == pytest.approx(owned * (12 + 12 + 2 + 2) / 2e12 * 1e9)


@pytest.mark.parametrize(("fused", "passes"), [(True, 3.5), (False, 3.0)])
def test_attention_executes_the_pairs_that_a_causal_mask_keeps(fused: bool, passes: float) -> None:
    rate = ComputeRate(
        **{"products": 1e30, "attention": 4e14, "attention_backward": 2e14},
        counted="executed",
        basis="",
    )
    job = replace(JOB, fused_attention=fused)
    step = slowest_stage(LLAMA, job, layout_of(), replace(cluster_of(), compute=rate))
    forward = 4 * LLAMA.layers * LLAMA.attention_width * S * S * job.batch / 2
    expected = forward / 4e14 + (passes - 1) * forward / 2e14
    assert step.time.compute_ns == pytest.approx(expected * 1e9)


def test_norms_are_summed_over_ranks_that_divide_tokens() -> None:
    found = rows(LLAMA, layout_of(tensor=2, pipeline=2, sequence_parallel=True))
    # Four layers a stage, with two norms of a weight each.
    assert found["gradients of undivided parameters: all-reduce"] == 4 * 2 * 1024 * 2


def test_a_small_message_takes_its_hops() -> None:
    row = PlannedTransfer(
        what="", kind="all-reduce", group="data", ranks=16, calls=1, total_bytes=1
    )
    near = msgspec.structs.replace(row, ranks=8)
    cluster = cluster_of(nodes=2)
    inside = transfer_ns(near, layout_of(data=8), cluster)
    # NCCL's model: 3.6 us, and 0.47 a hop of a ring within a node.
    assert inside == pytest.approx(3_600 + 14 * 470, rel=1e-3)
    across = transfer_ns(row, layout_of(data=16), cluster)
    # Around twice, from each of two nodes to the other.
    assert across == pytest.approx(3_600 + 30 * 470 + 4 * 2_700, rel=1e-3)
