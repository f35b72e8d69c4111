"""Recordings of examples/diagnosis on an H200: what each program is told first.

Made by tests/gpu/visit_diagnosis.py with torch 2.11; without samples and allocator events. What the
fixed programs took there is in `FIXED_MS`. small_all_reduces is of two ranks and of ten layers in
place of a hundred, to be small.
"""

import sys
from functools import cache
from pathlib import Path

import pytest

from gpuprof.collectors import storage
from gpuprof.roofline.advice_figures import Advice
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
RECORDINGS = Path(__file__).parents[1] / "data" / "diagnosis"
EXAMPLES = ROOT / "examples" / "diagnosis"
EXPECTED = tomllib.loads((EXAMPLES / "expected.toml").read_text())
NAMES = sorted(folder.name for folder in RECORDINGS.iterdir())
# Recorded with programs in which so much Python ran that lines were not followed, or before lines
# were.
WITHOUT_LINES = ("item_each_step", "activation_checkpointing")
# What is left of a step there is not known within 15 %, and the range must say so: Python that runs
# after 160 ms of garbage collection, compiled code that no step ran twice, and a kernel that no
# step ran.
WITHIN_A_RANGE = ("garbage_collection", "recompilation_storm", "narrow_projections")
# One step of the fixed program on that card, by its own clock without gpuprof, in ms.
FIXED_MS = {
    "activation_checkpointing": 48.5,
    "allocator_thrash": 2.849,
    "elementwise_chain": 0.605,
    "fp32_products": 10.186,
    "garbage_collection": 4.2,
    "item_each_step": 24.762,
    "misaligned_shapes": 2.540,
    "pageable_copies": 4.582,
    "recompilation_storm": 1.5,
    "narrow_projections": 0.198,
    "small_all_reduces": 2.386,
    "slow_loader_cpu": 7.256,
    "slow_loader_disk": 15.938,
    "tiny_grid": 0.373,
    "tiny_operators": 0.384,
    "transform_in_main": 7.254,
    "wave_tail": 3.727,
}


@cache
def analysis_of(name: str) -> Analysis:
    return analyze(storage.load(RECORDINGS / name))


def first_of(analysis: Analysis) -> Advice | None:
    return analysis.advice[0] if analysis.advice else None


@pytest.mark.parametrize("name", NAMES)
def test_the_first_finding_is_what_is_wrong(name: str) -> None:
    analysis, row = analysis_of(name), EXPECTED[name]
    first = first_of(analysis)
    assert ("none" if first is None else first.finding) in row["finding"]
    assert analysis.binds is not None
    assert analysis.binds.kind in row.get("binds", [analysis.binds.kind])
    if row.get("line") and name not in WITHOUT_LINES:
        assert first is not None
        lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
        line = next(at for at, text in enumerate(lines, 1) if text.endswith("# expected here"))
        assert any(place.place.endswith(f"{name}.py:{line}") for place in first.places)


@pytest.mark.parametrize("name", sorted(FIXED_MS))
def test_the_promised_step_is_near_that_of_the_fixed_program(name: str) -> None:
    first, promised_ms, shortest_ms, longest_ms = promised(analysis_of(name))
    if name in WITHIN_A_RANGE:
        assert shortest_ms <= FIXED_MS[name] <= longest_ms
        assert first.uncertain
    else:
        assert promised_ms == pytest.approx(FIXED_MS[name], rel=0.15)


def promised(analysis: Analysis) -> tuple[Advice, float, float, float]:
    """The first change with the step that it leaves, and within which that lies, in ms."""
    first = first_of(analysis)
    assert first is not None
    assert analysis.steps.median_ns is not None
    gains_ns = (first.gain_ns, *reversed(first.gain_range_ns))
    left = ((analysis.steps.median_ns - gain_ns) / 1e6 for gain_ns in gains_ns)
    return (first, *left)  # type: ignore[return-value]
