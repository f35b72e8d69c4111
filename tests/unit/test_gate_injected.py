"""Slow-downs injected into the suite on an H100, judged again as a gate of the suite judges them.

tests/gpu/visit_gate.py recorded them: five pairs of processes for each, of which the first was
profiled, too.
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


def judged(name: str) -> dict[str, Judgement]:
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
    judgements = judge_suite([*alike, *injected], Rules(RuleSettings()), today=date.min)
    return {j.benchmark: j for j in judgements if j.metric.name == "time"}


@pytest.mark.parametrize(
    ("name", "share"),
    [
        # fp32 in place of bf16 for one of twenty small products.
        ("matmul", 0.069),
        # 28 passes over activations that forty layers did without.
        ("linear_gelu", 0.051),
        # The kernel with smaller tiles for one of forty.
        ("attention", 0.070),
        # Three of a hundred in the steps that a fused kernel joins.
        ("softmax", 0.050),
        # Five of forty replays of a CUDA graph launched one by one.
        ("small_layers", 0.051),
    ],
)
def test_a_slow_down_is_caught_in_five_pairs_and_alone(name: str, share: float) -> None:
    verdicts = judged(name)

    assert verdicts[name].verdict == "REGRESSED"
    assert verdicts[name].change == pytest.approx(share, abs=0.001)
    others = {j.verdict for benchmark, j in verdicts.items() if benchmark != name}
    assert others == {"PASS"}
