"""What a plan counts beside products: bytes by hand and by a recorded step; planned steps beside
measured ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuprof.collectors import storage
from gpuprof.profiler.machine.ceiling_sources import datasheet_roof
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.plan.cluster import PlannedCluster
from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import ParallelLayout, TrainingJob
from gpuprof.roofline.plan.memory import stage_parameters
from gpuprof.roofline.plan.memory_bound import copied_bytes, memory_bound_bytes
from gpuprof.roofline.plan.rates import (
    compute_rate,
    link_rate,
    rate_beside_collectives,
    reached_memory_rates,
)
from gpuprof.roofline.plan.step_time import StageStep, slowest_stage

H200X2_DDP = Path(__file__).parents[1] / "data" / "measured" / "h200x2_ddp"
SMALL = DecoderShape(
    layers=2, hidden=8, heads=2, key_heads=1, head_size=4, inner=16, vocabulary=32, gated=True
)
JOB = TrainingJob(sequence=10, batch=3)
ONE = ParallelLayout(micro_batch=3)
TOKENS = 30
WITHIN = 0.15


def test_a_small_decoder_by_hand() -> None:
    # Norms, residuals, queries (8 wide) and keys (4 wide), gated activation; twice.
    forward = 2 * 2 * TOKENS * (2 * 2 * 8 + 2 * 3 * 8 + 2 * (8 + 4) + 5 * 16)
    backward = 2 * 2 * TOKENS * (2 * 5 * 8 + 2 * 3 * 8 + 2 * (8 + 4) + 9 * 16)
    # The embedding, the last norm, and 32 logits.
    ends_forward = TOKENS * (2 * 2 * 8 + 2 * 2 * 8 + (2 + 12) * 32)
    ends_backward = TOKENS * (2 * 2 * 8 + 2 * 5 * 8 + (2 + 20) * 32)
    found = memory_bound_bytes(SMALL, JOB, ONE, 0)
    assert (found.forward, found.backward) == (forward + ends_forward, backward + ends_backward)
    assert found.again == 0
    full = memory_bound_bytes(SMALL, JOB, replace(ONE, checkpointing="full"), 0)
    assert full.again == forward


@pytest.mark.parametrize(
    ("change", "more"),
    [
        # A table of positions in place of a rotation, forward and backward.
        ({"positions": 64}, -2 * TOKENS * 2 * (2 + 2) * 12),
        ({"gated": False}, -2 * TOKENS * 2 * (14 - 5) * 16),
        ({"normed_queries": True}, 2 * TOKENS * 2 * 7 * 12),
        ({"dropout": True}, 2 * TOKENS * 2 * 8 * (2 * (2 + 2) + 1 + 1)),
        # Two experts a token: twice the activation, and tokens sent to them and back.
        (
            {"experts": 4, "experts_per_token": 2},
            2 * TOKENS * 2 * (14 * 16 + 2 * (4 + 4) * 8),
        ),
    ],
)
def test_what_a_model_has_counts_and_what_it_has_not_does_not(
    change: dict[str, int], more: int
) -> None:
    plain, changed = (
        memory_bound_bytes(each, JOB, ONE, 0) for each in (SMALL, replace(SMALL, **change))
    )
    assert changed.forward + changed.backward - plain.forward - plain.backward == more


def test_scores_that_are_kept_count_and_are_made_again_by_selective_checkpointing() -> None:
    job = replace(JOB, fused_attention=False)
    plain, unfused = (memory_bound_bytes(SMALL, each, ONE, 0) for each in (JOB, job))
    scores = 2 * 2 * TOKENS * 10 * 2
    assert unfused.forward - plain.forward == 4 * scores
    assert unfused.backward - plain.backward == 5 * scores
    selective = replace(ONE, checkpointing="selective")
    assert memory_bound_bytes(SMALL, job, selective, 0).again == 4 * scores


def test_ranks_and_stages_share_it() -> None:
    flat = replace(SMALL, vocabulary=0)
    alone = memory_bound_bytes(SMALL, JOB, ONE, 0).forward
    stages = [
        memory_bound_bytes(SMALL, JOB, replace(ONE, pipeline=2), stage).forward for stage in (0, 1)
    ]
    assert sum(stages) == alone
    divided = replace(ONE, tensor=2, sequence_parallel=True)
    # A key head is on both ranks.
    keys = 2 * 2 * TOKENS * 2 * 4
    whole, part = (memory_bound_bytes(flat, JOB, each, 0).forward for each in (ONE, divided))
    assert 2 * part == whole + keys


def test_gradients_and_parameters_are_copied_to_be_sent() -> None:
    held = stage_parameters(SMALL, ONE, 0)
    gradients, layers = 2 * SMALL.parameters, 2 * 2 * SMALL.layer_parameters()
    assert copied_bytes(JOB, ONE, held) == 0
    # Added up over three micro-batches, then scaled into a buffer, and copied back.
    assert copied_bytes(JOB, ParallelLayout(data=4, micro_batches=3), held) == 10 * gradients
    sharded = ParallelLayout(data=4, zero=3)
    gathered = 2 * layers + (gradients - layers)
    assert copied_bytes(JOB, sharded, held) == 2 * gradients + 2 * gathered


def test_operators_of_a_recorded_step_move_as_many_bytes() -> None:
    """tests/gpu/two_ranks_job.py: per layer an activation without a gate, and one residual."""
    analysis = analyze(storage.load(H200X2_DDP), rank=0)
    steps, layers = analysis.steps.profiled, 6
    found: dict[tuple[str, str], int] = {}
    for point in analysis.ops:
        key = (point.name, point.phase)
        moved = (point.bytes_read or 0) + (point.bytes_written or 0)
        found[key] = found.get(key, 0) + moved // steps
    hidden, inner = 8192 * 4096 * 2, 8192 * 8192 * 2
    assert found["aten::clamp_min", "forward"] == layers * 2 * inner
    assert found["aten::threshold_backward", "backward"] == layers * 3 * inner
    assert found["aten::add", "forward"] == layers * 3 * hidden
    # Nothing is behind the first residual that asks for a gradient.
    assert found["aten::add_", "backward"] == (layers - 1) * 3 * hidden
    gradients = layers * 2 * 4096 * 8192 * 2
    assert found["aten::div_", "backward"] == pytest.approx(2 * gradients, rel=1e-6)


def planned(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout, nodes: int = 1
) -> StageStep:
    found = datasheet_roof("H200 SXM")
    compute, memory, link = (
        compute_rate(found.roof, "bf16", job.sequence),
        reached_memory_rates(found.roof),
        link_rate(found.roof),
    )
    assert compute is not None
    assert memory is not None
    assert link is not None
    cluster = PlannedCluster(
        device=found.name,
        nodes=nodes,
        gpus_per_node=8,
        memory_bytes=1,
        usable_bytes=1,
        compute=compute,
        memory_bytes_per_s=memory[0],
        optimizer_bytes_per_s=memory[1],
        link_bytes_per_s=link[0],
        link_basis=link[1],
        kept_beside_collectives=rate_beside_collectives(found.roof),
        network_bytes_per_s=50e9,
    )
    return slowest_stage(decoder, job, layout, cluster)


def decoder(hidden: int, heads: int, inner: int, vocabulary: int) -> DecoderShape:
    return DecoderShape(
        layers=4,
        hidden=hidden,
        heads=heads,
        key_heads=heads,
        head_size=128,
        inner=inner,
        vocabulary=vocabulary,
    )


def job(sequence: int, batch: int) -> TrainingJob:
    """AdamW of parameters in bf16, whose moments are too."""
    return TrainingJob(sequence=sequence, batch=batch, optimizer_bytes=4)


def test_steps_on_one_h200_are_planned_within_15_percent() -> None:
    """In ms: examples/train_transformer.py, and examples/diagnosis/healthy_training.py."""
    example = planned(decoder(2048, 16, 5504, 32000), job(2048, 4), ParallelLayout(micro_batch=4))
    healthy = planned(decoder(4096, 32, 16384, 0), job(2048, 8), ParallelLayout(micro_batch=8))
    assert example.time.step_ns / 1e6 == pytest.approx(30.41, rel=WITHIN)
    assert healthy.time.step_ns / 1e6 == pytest.approx(182.9, rel=WITHIN)


def test_four_h200_are_planned_within_15_percent() -> None:
    """Four blocks under DDP, 4096 tokens each, attention over 1024: 12.4 ms."""
    layout = ParallelLayout(data=4, micro_batch=4)
    found = planned(decoder(2048, 16, 5504, 0), job(1024, 16), layout)
    assert found.time.step_ns / 1e6 == pytest.approx(12.4, rel=WITHIN)
    assert found.time.step_ns < found.without_overlap_ns < 12.4e6


def test_computing_beside_messages_takes_longer_by_the_multiprocessors_that_they_take() -> None:
    layout = ParallelLayout(data=4, micro_batch=4)
    found = planned(decoder(2048, 16, 5504, 0), job(1024, 16), layout)
    of_messages_ns = sum(row.time_ns for row in found.transfers)
    hidden_ns = of_messages_ns - found.time.data_ns
    assert found.time.slowed_ns == pytest.approx(0.18 * hidden_ns, rel=1e-3)
    assert found.without_overlap_ns - found.time.step_ns == pytest.approx(
        0.82 * hidden_ns, rel=1e-3
    )
    assert planned(SMALL, JOB, ONE).time.slowed_ns == 0


@pytest.mark.parametrize(("zero", "measured_ms"), [(0, 34.5), (3, 36.1)])
def test_two_h200_are_planned_within_15_percent(zero: int, measured_ms: float) -> None:
    """tests/gpu/two_ranks_job.py, by its own events: blocks of two products.

    The plan has their norms, a second residual, and copies back of gradients in it, 2.2 ms that the
    program does not do.
    """
    blocks = DecoderShape(
        layers=6,
        hidden=4096,
        heads=0,
        key_heads=0,
        head_size=0,
        inner=8192,
        vocabulary=0,
        gated=False,
    )
    training = TrainingJob(sequence=8192, batch=2, optimizer_bytes=0)
    found = planned(blocks, training, ParallelLayout(data=2, zero=zero))
    assert found.time.step_ns / 1e6 == pytest.approx(measured_ms, rel=WITHIN)
