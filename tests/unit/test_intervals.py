"""The union of time intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof.roofline.intervals import union_ns


def union(*intervals: tuple[int, int]) -> int:
    pairs = np.array(intervals, np.int64).reshape(-1, 2)
    return union_ns(pairs[:, 0], pairs[:, 1])


@pytest.mark.parametrize(
    ("intervals", "covered"),
    [
        ([], 0),
        ([(5, 5)], 0),
        ([(0, 10), (20, 30)], 20),
        ([(0, 10), (10, 20)], 20),
        ([(20, 30), (0, 25)], 30),
        ([(0, 100), (10, 20), (50, 120)], 120),
        ([(0, 10), (0, 10)], 10),
    ],
)
def test_each_nanosecond_counts_once(intervals: list[tuple[int, int]], covered: int) -> None:
    assert union(*intervals) == covered


def test_times_since_the_epoch_are_exact() -> None:
    epoch = 1_800_000_000_000_000_001
    assert union((epoch, epoch + 3), (epoch + 2, epoch + 4)) == 4


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=12))
def test_the_union_is_the_count_of_covered_instants(spans: list[tuple[int, int]]) -> None:
    intervals = [(start, start + length) for start, length in spans]
    covered = {instant for start, end in intervals for instant in range(start, end)}
    assert union(*intervals) == len(covered)
