"""Slow-downs injected into the suite on an H100, judged again as a gate of the suite judges them.

tests/gpu/visit_gate.py recorded them: five pairs of processes for each. Of kernels only the first
pair had any recorded, so they are left out here.
"""

import gzip
from datetime import date
from pathlib import Path

import msgspec
import pytest

from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import MeasuredProcess, Rules, judge_suite

DATA = Path(__file__).parents[1] / "data"
PAIRS = 5


def judged(name: str, *, fail_above: float) -> dict[str, Judgement]:
    """The verdicts on the time of the ten benchmarks, of which only `name` was made slower."""
    recorded = gzip.decompress((DATA / "gate_injected" / "h100.json.gz").read_bytes())
    injected = msgspec.json.decode(recorded, type=dict[str, list[MeasuredProcess]])[name]
    recorded = gzip.decompress((DATA / "gate" / "h100_settled.json.gz").read_bytes())
    alike = [
        msgspec.structs.replace(
            process,
            measurements={n: m for n, m in process.measurements.items() if n != name},
        )
        for process in msgspec.json.decode(recorded, type=list[MeasuredProcess])
        if process.pair < PAIRS
    ]
    rules = Rules(RuleSettings(fail_above=fail_above))
    judgements = judge_suite([*alike, *injected], rules, today=date.min)
    return {j.benchmark: j for j in judgements if j.metric.name == "time"}


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        # fp32 in place of bf16 for one of twenty small products.
        ("matmul", 0.025, 0.045),
        # Sixteen passes more over a layer's activations.
        ("linear_gelu", 0.02, 0.04),
        # The kernel with smaller tiles for two of forty.
        ("attention", 0.12, 0.16),
    ],
)
def test_what_is_over_the_limit_is_caught_in_five_pairs(name: str, low: float, high: float) -> None:
    verdicts = judged(name, fail_above=0.02)

    assert verdicts[name].verdict == "REGRESSED"
    assert low < (verdicts[name].change or 0) < high
    others = {j.verdict for benchmark, j in verdicts.items() if benchmark != name}
    assert others == {"PASS"}


def test_a_lost_fusion_that_costs_less_than_the_limit_passes_unless_the_limit_is_lower() -> None:
    (passed, caught) = (judged("softmax", fail_above=limit)["softmax"] for limit in (0.02, 0.01))

    assert passed.verdict == "PASS"
    assert passed.reason == "below-budget"
    assert 0.012 < (passed.change or 0) < 0.02
    assert caught.verdict == "REGRESSED"


def test_what_lies_at_the_limit_is_measured_again() -> None:
    # A CUDA graph that two of forty replays lost.
    found = judged("small_layers", fail_above=0.02)["small_layers"]

    assert found.change == pytest.approx(0.02, abs=0.002)
    assert found.verdict != "PASS"
    assert found.pairs_wanted > 0
