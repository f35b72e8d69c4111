"""The union of time intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof.roofline.intervals import begun_by, union_ns


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


@given(st.lists(st.integers(0, 20), max_size=6), st.lists(st.integers(-2, 22), max_size=20))
def test_what_has_begun_is_counted_in_any_order(edges: list[int], times: list[int]) -> None:
    expected = [sum(edge <= time for edge in edges) for time in times]
    ordered = np.array(sorted(edges), np.int64)
    assert begun_by(ordered, np.array(times, np.int64)).tolist() == expected
    assert begun_by(ordered, np.array(sorted(times), np.int64)).tolist() == sorted(expected)
