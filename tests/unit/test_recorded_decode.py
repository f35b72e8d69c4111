"""A real decoding step on an H100: Llama-2-7B, 64 sequences with 1,024 tokens in cache, bf16.

Recorded with tests/gpu/visit_models.py, torch 2.11.0, CUDA 13.0, driver 580.159.04.
"""

from pathlib import Path

import pytest

from gpuprof.collectors import storage
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

CAPTURE = Path(__file__).parent.parent / "data" / "captures" / "h100_llama2_7b_decode"
LAYERS, HIDDEN, FEED_FORWARD, VOCABULARY = 32, 4096, 11008, 32000
BATCH, CACHED = 64, 1024
EMBEDDING = HIDDEN * VOCABULARY
NORMS = (2 * LAYERS + 1) * HIDDEN
WEIGHTS = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * FEED_FORWARD) + EMBEDDING
ATTENTION = 4 * LAYERS * BATCH * CACHED * HIDDEN


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze(storage.load(CAPTURE))


def test_mbu_is_all_weights_and_the_whole_cache_over_time_over_bandwidth(
    analysis: Analysis,
) -> None:
    use = analysis.utilization
    assert use is not None
    assert use.weight_bytes == 2 * WEIGHTS
    assert use.key_value_bytes == 2 * 2 * LAYERS * BATCH * CACHED * HIDDEN
    assert use.mbu is not None
    bytes_read = use.weight_bytes + use.key_value_bytes
    assert use.mbu == pytest.approx(bytes_read / (use.step_ns / 1e9) / 3.35e12, rel=1e-12)
    assert 0.6 < use.mbu < 0.65


def test_mfu_of_decoding_is_small_and_has_nothing_computed_again(analysis: Analysis) -> None:
    use = analysis.utilization
    assert use is not None
    assert use.model_flops == 2 * BATCH * WEIGHTS + ATTENTION
    assert use.hardware_flops == use.model_flops == use.model_flops_causal
    assert use.mfu is not None
    assert use.mfu < 0.05


def test_the_closed_form_is_explained_to_the_last_flop(analysis: Analysis) -> None:
    form = analysis.closed_form
    assert form is not None
    assert (form.formula, form.tokens) == ("2 N D + 4 L H Q T D", BATCH)
    assert form.parameters == WEIGHTS + EMBEDDING + NORMS
    assert form.attention_flops == ATTENTION
    assert {d.flops for d in form.differences} == {-2 * EMBEDDING * BATCH, -2 * NORMS * BATCH}
    assert form.unexplained == 0


def test_the_step_waited_for_its_host(analysis: Analysis) -> None:
    assert analysis.bottleneck.kind == "launch"
