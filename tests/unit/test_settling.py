"""Whether timed steps were still changing."""

import gzip
import random
from pathlib import Path

import msgspec
import pytest

from gpuprof.roofline.gate.disturbances import still_settling
from gpuprof.roofline.gate.suite import MeasuredProcess
from gpuprof.roofline.steps.settling import unsettled

DATA = Path(__file__).parents[1] / "data" / "gate"


def processes_of(name: str) -> list[MeasuredProcess]:
    """A recording."""
    content = gzip.decompress((DATA / name).read_bytes())
    return msgspec.json.decode(content, type=list[MeasuredProcess])


def recorded(name: str, benchmark: str) -> list[tuple[int, ...]]:
    """The timed steps of each recorded process."""
    return [process.measurements[benchmark].samples_ns for process in processes_of(name)]


def test_steps_on_the_way_down_to_the_power_limit_are_told() -> None:
    # The products of an H100 that had rested.
    found = unsettled([7_700_000 + 100_000 * min(step, 5) for step in range(20)])

    assert found is not None
    assert found.startswith(
        "the first 5 of 20 timed steps took 7.9 ms, the others 8.2 ms (+3.8%): "
    )


def test_of_recorded_steps_only_those_before_the_clock_had_settled_are_told() -> None:
    before = [unsettled(steps) for steps in recorded("h100.json.gz", "matmul")]
    after = [unsettled(steps) for steps in recorded("h100_settled.json.gz", "matmul")]
    memory_bound = [unsettled(steps) for steps in recorded("h100.json.gz", "softmax")]

    assert sum(found is not None for found in before) > len(before) / 3
    assert after == [None] * len(after)
    assert memory_bound == [None] * len(memory_bound)


def test_a_gate_names_the_benchmarks_that_were_timed_too_early() -> None:
    early = list(still_settling(processes_of("h100.json.gz")))

    assert [sentence.partition(":")[0] for sentence in early] == ["linear_gelu", "matmul"]
    assert "of 52 processes" in early[0]
    assert list(still_settling(processes_of("h100_settled.json.gz"))) == []
    assert list(still_settling(processes_of("cpu_2_cores_pinned.json.gz"))) == []


@pytest.mark.parametrize("count", [0, 1, 5, 9])
def test_of_few_steps_nothing_is_said(count: int) -> None:
    assert unsettled([1_000_000 * (step + 1) for step in range(count)]) is None


@pytest.mark.parametrize("count", [10, 20, 100])
def test_noise_is_told_about_as_often_as_promised(count: int) -> None:
    drawn = random.Random(2)
    said = sum(
        unsettled([round(drawn.gauss(1e6, 1e5)) for _ in range(count)]) is not None
        for _ in range(400)
    )
    # One in a hundred, less those whose medians differ by less.
    assert said <= 12


def test_a_clear_change_that_is_small_is_not_told() -> None:
    assert unsettled([1_000_000] * 5 + [1_020_000] * 15) is None
    assert unsettled([0] * 20) is None
