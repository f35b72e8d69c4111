"""What two sequences have in common, in order."""

from collections.abc import Hashable, Sequence


def common_subsequence(
    first: Sequence[Hashable], second: Sequence[Hashable]
) -> list[tuple[int, int]]:
    """Positions (in `first`, in `second`) of a longest common subsequence, in order.

    Of several it is the one that uses the earliest positions. Takes len(first) * len(second) / 64
    operations: one integer holds a row of the usual table, a bit a column, 0 where the length grows
    (H. Hyyrö, Bit-parallel LCS-length computation revisited, 2004).
    """
    occurrences: dict[Hashable, int] = {}
    for position, item in enumerate(second):
        occurrences[item] = occurrences.get(item, 0) | 1 << position
    everything = (1 << len(second)) - 1
    row = everything
    rows = [row]
    for item in first:
        matching = row & occurrences.get(item, 0)
        row = ((row + matching) | (row - matching)) & everything
        rows.append(row)
    pairs = []
    end = len(second)
    length = _zeros(rows[-1], end)
    index = len(first)
    while length:
        while _zeros(rows[index - 1], end) == length:
            index -= 1
        # The length grows here for the first time: with this item, where its row's last 0 stands.
        index -= 1
        end = (~rows[index + 1] & ((1 << end) - 1)).bit_length() - 1
        pairs.append((index, end))
        length -= 1
    return pairs[::-1]


def forced_pairs(
    first: Sequence[Hashable], second: Sequence[Hashable]
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Pairs that a longest common subsequence has whether read from its start or from its end.

    Second come those positions of `first` that both match, each with its earliest and its latest
    partner: which of them it is, or one in between, the sequences do not tell.
    """
    earliest = dict(common_subsequence(first, second))
    latest = {
        len(first) - 1 - one: len(second) - 1 - other
        for one, other in common_subsequence(first[::-1], second[::-1])
    }
    both = sorted(earliest.keys() & latest.keys())
    forced = [(one, earliest[one]) for one in both if earliest[one] == latest[one]]
    open_ones = [(one, earliest[one], latest[one]) for one in both if earliest[one] != latest[one]]
    return forced, open_ones


def _zeros(row: int, end: int) -> int:
    """How many of the lowest `end` bits of `row` are 0."""
    return end - (row & ((1 << end) - 1)).bit_count()
