"""The largest loss of a step."""

import pytest

from gpuprof.roofline.classes import classes
from gpuprof.roofline.points.bottleneck import classify_step
from gpuprof.roofline.step_figures import SplitPart, StepDefinition, StepSplit
from gpuprof.roofline.steps.waiting import SeenWaiting, Waiting, waiting_parts

STEP_NS = 1_000_000


def split(basis: StepDefinition = "timed", **parts: int) -> StepSplit:
    parts = {"roof": STEP_NS - sum(parts.values()), **parts}
    return StepSplit(
        step_ns=STEP_NS,
        basis=basis,
        parts=tuple(
            SplitPart(kind, nanoseconds, least_ns(kind, nanoseconds, basis))
            for kind, nanoseconds in parts.items()
        ),
    )


def least_ns(kind: str, nanoseconds: int, basis: StepDefinition) -> int | None:
    """As a step is split whose host only launches."""
    if kind != "launch" or basis == "timed":
        return None
    seen = SeenWaiting({"launch": Waiting(shrinks_ns=nanoseconds)})
    found = waiting_parts(seen, nanoseconds, step_ns=STEP_NS, basis=basis)
    return found.parts["launch"].least_ns


LOSSES = tuple(name for name, row in classes().items() if row.loss)


@pytest.mark.parametrize("kind", LOSSES)
def test_the_largest_loss_is_the_class_of_a_step(kind: str) -> None:
    losses = dict.fromkeys(LOSSES, 100_000)
    found = classify_step(split(**{**losses, kind: 400_000}), "")
    assert found.kind == kind
    assert found.evidence.startswith("40% of the step (400 µs): ")
    assert found.gain_ns == (400_000 if classes()[kind].removable else None)


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        ("timed", "40% of the step"),
        ("host range", "40% of a profiled step"),
        ("device period", "40% of a profiled step"),
        ("whole trace", "40% of the trace"),
    ],
)
def test_a_loss_is_of_the_step_that_was_split(basis: StepDefinition, words: str) -> None:
    found = classify_step(split(basis, memory=400_000), "")
    assert found.evidence.startswith(f"{words} (400 µs): ")


def test_a_step_without_losses_runs_at_its_roof() -> None:
    found = classify_step(split(), "")
    assert (found.kind, found.gain_ns) == ("compute", 0)


def test_a_step_that_cannot_be_split_is_unknown() -> None:
    assert classify_step(None, "no step").evidence == "no step"


@pytest.mark.parametrize("basis", ["device period", "host range", "whole trace"])
def test_a_gap_of_a_profiled_step_never_wins_over_a_larger_certain_loss(
    basis: StepDefinition,
) -> None:
    # As in the recording h100_block_infer_fp16: the device is busy for 70 % of the step, so without
    # the profiler the gap may be none at all.
    parts = {"launch": 300_000, "compute": 160_000}
    assert classify_step(split(**parts), "").kind == "launch"
    found = classify_step(split(basis, **parts), "")
    assert (found.kind, found.gain_ns) == ("compute", 160_000)
    assert found.evidence.endswith(
        "; the device also waits for the host, without the profiler for 0 to 300 µs"
    )


def test_a_gap_that_the_profiler_cannot_have_made_wins_with_its_range() -> None:
    # 2.35 times as long at most: 425,532 ns of the step are left, and 100,000 of them are busy.
    found = classify_step(split("host range", launch=900_000, memory=50_000), "")
    assert (found.kind, found.gain_ns) == ("launch", 900_000)
    assert found.evidence.endswith("; without the profiler for 326 µs to 900 µs")


def test_a_gap_is_the_verdict_where_nothing_else_is_lost() -> None:
    found = classify_step(split("host range", launch=100_000), "")
    assert (found.kind, found.gain_ns) == ("launch", 100_000)
    assert found.evidence.endswith("; without the profiler for 0 to 100 µs")


def test_waiting_for_a_rank_whose_host_the_profiler_slows_has_a_range() -> None:
    parts = split("device period", **{"other rank": 300_000, "compute": 100_000})
    found = classify_step(parts, "", others_gap_ns=250_000)
    assert found.kind == "other rank"
    assert found.evidence.endswith("; without the profiler for 50 µs to 300 µs")
    assert "profiler" not in classify_step(parts, "").evidence
    timed = split(**{"other rank": 300_000})
    assert "profiler" not in classify_step(timed, "", others_gap_ns=250_000).evidence
