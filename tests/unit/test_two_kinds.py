"""Timed steps that are short and long in turn."""

import random

import pytest

from gpuprof.roofline.steps.two_kinds import two_kinds

MS = 1_000_000


def lengths(*steps_ms: float) -> list[int]:
    return [round(ms * MS) for ms in steps_ms]


def test_each_second_step_that_is_longer_is_another_kind() -> None:
    said = two_kinds(lengths(10, 40, 11, 41, 10.5, 42, 10, 39, 10, 40))
    assert said is not None
    assert said.startswith("5 of 10 timed steps took about 10 ms and 5 about 40 ms")
    # Worked out by hand: 253.5 ms in ten steps.
    assert said.endswith("a mean step takes 25.4 ms")


def test_two_of_six_are_a_kind_and_one_is_an_outlier() -> None:
    assert two_kinds(lengths(10, 10, 10, 10, 30, 31)) is not None
    assert two_kinds(lengths(10, 10, 10, 10, 10, 31)) is None


@pytest.mark.parametrize(
    "steps",
    [
        # All alike, or as good as.
        lengths(*[10] * 10),
        lengths(*[10] * 5, *[11] * 5),
        # One kind that varies: a loader that takes what it takes.
        lengths(17.5, 47, 86, 40, 90, 54, 27, 28, 38, 7.3),
        # Too few to tell.
        lengths(10, 40, 10, 40),
        [],
    ],
)
def test_steps_of_one_kind_have_no_word(steps: list[int]) -> None:
    assert two_kinds(steps) is None


def test_steps_that_vary_by_chance_are_rarely_taken_for_two_kinds() -> None:
    pick = random.Random(7)
    trials = 400
    wrong = sum(
        two_kinds([round(MS * pick.lognormvariate(0, 0.3)) for _ in range(10)]) is not None
        for _ in range(trials)
    )
    assert wrong <= 0.02 * trials
