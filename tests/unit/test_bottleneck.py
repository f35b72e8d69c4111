"""Bottleneck classes and their evidence."""

import pytest

from gpuprof.roofline.analysis import SplitPart, StepDefinition, StepSplit
from gpuprof.roofline.classes import classes
from gpuprof.roofline.machine.ceilings import Ceiling
from gpuprof.roofline.machine.roof_time import ResourceTime, RoofTime
from gpuprof.roofline.points.bottleneck import Launch, classify, classify_step

TENSOR = Ceiling(
    kind="compute", rate=1e15, source="datasheet", reference="t", unit="tensor", precision="bf16"
)
DRAM = Ceiling(kind="memory", rate=1e12, source="measured", reference="t", level="DRAM")
MANY = Launch(blocks=1000, multiprocessors=132)


def times(compute_ns: float | None, memory_ns: float) -> RoofTime:
    compute = None if compute_ns is None else ResourceTime(compute_ns, TENSOR)
    return RoofTime(compute, ResourceTime(memory_ns, DRAM), complete=True)


def verdict(
    roof: RoofTime,
    device_ns: int,
    *,
    calls: int = 1,
    steps: int = 1,
    kind: str = "cuda",
    launch: Launch = MANY,
) -> tuple[str, str, int | None]:
    found = classify(
        roof,
        calls=calls,
        device_ns=device_ns,
        steps=steps,
        device_kind=kind,
        launch=launch,
        reason_unknown="nobody knows",
    )
    return found.kind, found.evidence, found.gain_ns


def test_the_binding_resource_names_the_class() -> None:
    kind, evidence, gain = verdict(times(80_000, 20_000), 100_000)
    assert (kind, gain) == ("compute", 20_000)
    assert evidence == "80.0% of bf16 tensor (datasheet, dense)"
    kind, evidence, gain = verdict(times(20_000, 60_000), 100_000)
    assert (kind, gain) == ("memory", 40_000)
    assert evidence == "60.0% of DRAM (measured)"


def test_large_work_far_below_its_roof_keeps_its_resource() -> None:
    assert verdict(times(100_000, 20_000), 1_000_000)[0] == "compute"


def test_work_that_is_too_small_for_the_device_is_latency() -> None:
    kind, evidence, gain = verdict(times(None, 4_000), 40_000, calls=4, steps=2)
    assert (kind, gain) == ("latency", 18_000)
    assert evidence == "1 us of work at the roof takes 10 us a call"


def test_small_work_near_its_roof_is_no_latency() -> None:
    assert verdict(times(None, 1_000), 1_900)[0] == "memory"


def test_a_cpu_needs_longer_to_start_a_call() -> None:
    assert verdict(times(None, 4_000), 40_000)[0] == "memory"
    assert verdict(times(None, 4_000), 40_000, kind="cpu")[0] == "latency"


def test_too_few_blocks_are_latency_and_evidence() -> None:
    few = Launch(blocks=32, multiprocessors=132)
    kind, evidence, _ = verdict(times(100_000, 20_000), 1_000_000, launch=few)
    assert kind == "latency"
    assert evidence.endswith("32 blocks for 132 multiprocessors")


@pytest.mark.parametrize("launch", [Launch(None, 132), Launch(32, None), Launch(132, 132)])
def test_parallelism_that_is_unknown_or_enough_is_no_verdict(launch: Launch) -> None:
    assert verdict(times(100_000, 20_000), 1_000_000, launch=launch)[0] == "compute"


def test_more_than_the_roof_is_flagged_and_not_clipped() -> None:
    kind, evidence, gain = verdict(times(150_000, 20_000), 100_000)
    assert (kind, gain) == ("compute", 0)
    assert evidence.startswith("150.0% of bf16 tensor (datasheet, dense): peak or count wrong")


@pytest.mark.parametrize("device_ns", [0, 100])
def test_without_a_roof_or_time_the_class_is_unknown(device_ns: int) -> None:
    unknown = RoofTime(None, ResourceTime(10, DRAM), complete=False)
    roof = times(None, 10) if device_ns == 0 else unknown
    assert verdict(roof, device_ns) == ("unknown", "nobody knows", None)


def split(basis: StepDefinition = "timed", **parts: int) -> StepSplit:
    parts = {"roof": 1_000_000 - sum(parts.values()), **parts}
    return StepSplit(
        step_ns=1_000_000,
        basis=basis,
        parts=tuple(SplitPart(kind, nanoseconds) for kind, nanoseconds in parts.items()),
    )


LOSSES = tuple(name for name, row in classes().items() if row.loss)


@pytest.mark.parametrize("kind", LOSSES)
def test_the_largest_loss_is_the_class_of_a_step(kind: str) -> None:
    losses = dict.fromkeys(LOSSES, 100_000)
    found = classify_step(split(**{**losses, kind: 400_000}), "")
    assert found.kind == kind
    assert found.evidence.startswith("40% of the step (0.4 ms): ")
    assert found.gain_ns == (None if kind == "unknown" else 400_000)


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
        "; the device also waits for the host, without the profiler for 0 to 0.3 ms"
    )


def test_a_gap_that_the_profiler_cannot_have_made_wins_with_its_range() -> None:
    # 2.35 times as long at most: 425,532 ns of the step are left, and 100,000 of them are busy.
    found = classify_step(split("host range", launch=900_000, memory=50_000), "")
    assert (found.kind, found.gain_ns) == ("launch", 900_000)
    assert found.evidence.endswith("; without the profiler for 0.326 ms to 0.9 ms")


def test_a_gap_is_the_verdict_where_nothing_else_is_lost() -> None:
    found = classify_step(split("host range", launch=100_000), "")
    assert (found.kind, found.gain_ns) == ("launch", 100_000)
    assert found.evidence.endswith("; without the profiler for 0 to 0.1 ms")
