"""What two sequences have in common, against the textbook's table."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuprof.collectors.joining.sequences import common_subsequence, forced_pairs

SEQUENCES = st.lists(st.integers(0, 4), max_size=14)


def longest(first: list[int], second: list[int]) -> int:
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            skipped = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else skipped
    return table[-1][-1]


@given(SEQUENCES, SEQUENCES)
def test_the_subsequence_is_common_in_order_and_as_long_as_the_table_says(
    first: list[int], second: list[int]
) -> None:
    pairs = common_subsequence(first, second)
    assert len(pairs) == longest(first, second)
    assert all(first[one] == second[other] for one, other in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))


@given(SEQUENCES, SEQUENCES)
def test_pairs_are_forced_only_where_both_ends_agree(first: list[int], second: list[int]) -> None:
    forced, unsure = forced_pairs(first, second)
    assert all(first[one] == second[other] for one, other in forced)
    for one, earliest, latest in unsure:
        assert earliest != latest
        assert first[one] == second[earliest] == second[latest]


def test_equal_sequences_leave_nothing_open() -> None:
    sequence = [1, 2, 2, 3, 2, 2, 1]
    assert forced_pairs(sequence, sequence) == ([(i, i) for i in range(7)], [])


def test_one_of_two_equal_neighbours_is_not_told_apart() -> None:
    assert forced_pairs([1, 2, 3], [1, 2, 2, 3]) == ([(0, 0), (2, 3)], [(1, 1, 2)])
