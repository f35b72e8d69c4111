"""A real `gpuprof run` on an H200: one training step of a Llama-2-7B block, B=2, S=2048, bf16.

Recorded with benchmarks/scripts/llama_block.py, torch 2.11.0, CUDA 13.0, driver 580.159.04.
"""

from pathlib import Path

import pytest

from gpuprof.collectors import storage
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

CAPTURE = Path(__file__).parent.parent / "data" / "captures" / "h200_llama_block"
HIDDEN, HEADS, FEED_FORWARD, BATCH, SEQUENCE = 4096, 32, 11008, 2, 2048
TOKENS = BATCH * SEQUENCE
PARAMETERS = 4 * HIDDEN**2 + 3 * HIDDEN * FEED_FORWARD
# Both products over all pairs of positions.
ATTENTION = 4 * BATCH * SEQUENCE**2 * HIDDEN
ATTENTION_KEPT = 4 * BATCH * (SEQUENCE * (SEQUENCE + 1) // 2) * HIDDEN


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze(storage.load(CAPTURE))


def gemm_flops(analysis: Analysis, phase: str) -> float:
    """bf16 matmul FLOPs of one step's aten::mm calls."""
    return sum(
        part.count / analysis.steps.profiled
        for op in analysis.ops
        if op.name == "aten::mm" and op.phase == phase
        for part in op.flops or ()
        if part.kind == "matmul" and part.precision == "bf16"
    )


def test_gemm_flops_are_exact_forward_and_backward(analysis: Analysis) -> None:
    assert gemm_flops(analysis, "forward") == 2 * TOKENS * PARAMETERS
    assert gemm_flops(analysis, "backward") == 4 * TOKENS * PARAMETERS


def test_attention_counts_the_pairs_that_the_mask_keeps(analysis: Analysis) -> None:
    counted = {
        op.phase: sum(f.count for f in op.flops or () if f.kind == "matmul") / op.calls
        for op in analysis.ops
        if "attention" in op.name
    }
    # The backward recomputes the scores: five products instead of two.
    assert counted == {"forward": ATTENTION_KEPT, "backward": ATTENTION_KEPT * 5 / 2}


def test_mfu_is_flops_over_time_over_the_dense_peak(analysis: Analysis) -> None:
    use = analysis.utilization
    assert use is not None
    assert use.peak is not None
    assert use.mfu is not None
    # MFU leaves out the scores that the backward recomputes, HFU keeps them.
    assert use.model_flops == 6 * TOKENS * PARAMETERS + 3 * ATTENTION
    assert use.hardware_flops == use.model_flops + ATTENTION // 2
    assert (use.peak.rate, use.peak.source) == (989.4e12, "datasheet")
    assert use.step_ns == analysis.steps.median_ns
    by_hand = use.model_flops / (use.step_ns / 1e9) / 989.4e12
    assert use.mfu == pytest.approx(by_hand, rel=1e-12)


def test_steps_are_timed_by_events_and_the_work_fits_into_them(analysis: Analysis) -> None:
    assert analysis.steps.clock == "CUDA events"
    assert (analysis.steps.timed, analysis.steps.profiled) == (10, 3)
    split = analysis.split
    assert split is not None
    assert split.basis == "timed"
    assert split.step_ns == sum(part.nanoseconds for part in split.parts)


def test_all_device_time_is_covered(analysis: Analysis) -> None:
    coverage = analysis.coverage
    assert (coverage.with_op, coverage.with_flops, coverage.with_bytes) == (1, 1, 1)


def test_no_work_is_above_its_roof(analysis: Analysis) -> None:
    fractions = [op.roof_fraction for op in analysis.ops if op.roof_fraction is not None]
    assert max(fractions) <= 1


def test_the_gpu_was_sampled_while_steps_were_timed(analysis: Analysis) -> None:
    state = analysis.device_state
    assert state is not None
    assert state.sm_clock_mhz_median is not None
    assert 1000 < state.sm_clock_mhz_median <= 1980
    assert state.power_watts_median is not None
