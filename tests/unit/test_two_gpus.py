"""Two H200 that train together: what gpuprof says of each rank against the job's own events."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuprof.collectors import storage
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.classes import COMMUNICATION, OTHER_RANK

DATA = Path(__file__).parents[1] / "data" / "measured"
# tests/gpu/two_ranks_job.py, which measured them after it had been profiled.
BY_EVENTS: dict[str, list[dict[str, float]]] = json.loads(
    (DATA / "h200x2_by_events.json").read_text()
)
# Of the step.
WITHIN = 0.05


def analysed(name: str) -> tuple[Analysis, ...]:
    capture = storage.load(DATA / name)
    return tuple(analyze(capture, rank=rank) for rank in (0, 1))


def exposed_ms(analysis: Analysis) -> float:
    """What of a step without the profiler the device spends in communication alone."""
    assert analysis.split is not None
    assert analysis.split.basis == "timed"
    exposed_ns = sum(map(analysis.split.nanoseconds, (COMMUNICATION, OTHER_RANK)))
    return exposed_ns / 1e6


@pytest.mark.parametrize("name", ["h200x2_ddp", "h200x2_fsdp", "h200x2_tensor"])
def test_step_and_exposed_communication_are_those_of_the_events(name: str) -> None:
    for analysis, own in zip(analysed(name), BY_EVENTS[name], strict=True):
        within: dict[str, Any] = {"abs": WITHIN * own["step_ms"]}
        assert (analysis.steps.length_ns or 0) / 1e6 == pytest.approx(own["step_ms"], **within)
        assert exposed_ms(analysis) == pytest.approx(own["exposed_ms"], **within)
        assert analysis.bottleneck.kind == "compute"


@pytest.mark.parametrize("name", ["h200x2_ddp", "h200x2_tensor"])
def test_all_communication_is_that_of_nccls_own_events(name: str) -> None:
    for analysis, own in zip(analysed(name), BY_EVENTS[name], strict=True):
        assert analysis.ranks is not None
        moved = [each for each in analysis.transfers if each.kind == COMMUNICATION]
        steps = len(analysis.ranks.ranks[0].steps)
        found_ms = sum(each.device_ns for each in moved) / steps / 1e6
        assert found_ms == pytest.approx(own["communication_ms"], abs=WITHIN * own["step_ms"])


@pytest.mark.parametrize("name", ["h200x2_ddp", "h200x2_fsdp", "h200x2_tensor"])
def test_nobody_is_called_late_where_ranks_do_the_same(name: str) -> None:
    assert [analysis.ranks and analysis.ranks.stragglers for analysis in analysed(name)] == [(), ()]


def test_a_pause_that_the_host_runs_ahead_of_costs_what_a_step_has_room_for() -> None:
    waiting, late = analysed("h200x2_ddp_sleep")
    assert late.bottleneck.kind == "host work"
    assert waiting.ranks is not None
    (straggler,) = waiting.ranks.stragglers
    assert (straggler.rank, straggler.causes[0].what) == (1, "Python between operators")
    assert straggler.causes[0].place == "tests/gpu/two_ranks_job.py:184"
    # It sleeps 30 ms, of which the device notices 16 in a profiled step that began with no queue.
    assert straggler.per_step_ns > 15e6
    assert straggler.at_most_ns is not None
    assert straggler.at_most_ns < 6e6
    (advice,) = [each for each in waiting.advice if each.finding == "straggler's host"]
    assert advice.gain_ns == straggler.at_most_ns
    assert "while profiled, and 4.72 ms a step at most without" in advice.evidence
