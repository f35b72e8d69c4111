"""How much more each rank needs by itself than the median of all, by rank and step, for a picture.

Of more ranks or steps than a picture has room for, neighbours share a row or column, which shows
the largest of them: one late rank of a thousand stays visible.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from gpuprof.roofline.rank_figures import RankFigures

_MOST_ROWS: Final = 64
_MOST_COLUMNS: Final = 60


@dataclass(frozen=True)
class GridCell:
    """Neighbouring ranks in neighbouring steps: the one that needs most beyond the median."""

    rank: int
    step: int
    # 0 where none needs more than the median.
    beyond_ns: int


@dataclass(frozen=True)
class RankGrid:
    """Cells by row and column; None where nothing is known of it."""

    # First and last of each row and column.
    ranks: tuple[tuple[int, int], ...]
    steps: tuple[tuple[int, int], ...]
    cells: tuple[tuple[GridCell | None, ...], ...]


def rank_grid(ranks: Sequence[RankFigures]) -> RankGrid | None:
    """The grid of `ranks`, in order of their numbers; None where no step of theirs is known."""
    own_ns: dict[int, dict[int, int]] = defaultdict(dict)
    for one in ranks:
        for step in one.steps:
            own_ns[step.index][one.rank] = step.own_ns
    if not own_ns:
        return None
    rows = _parts([one.rank for one in ranks], _MOST_ROWS)
    columns = _parts(sorted(own_ns), _MOST_COLUMNS)
    median_ns = {step: median_low(lengths.values()) for step, lengths in own_ns.items()}
    return RankGrid(
        tuple((row[0], row[-1]) for row in rows),
        tuple((column[0], column[-1]) for column in columns),
        tuple(
            tuple(_largest(row, column, own_ns, median_ns) for column in columns) for row in rows
        ),
    )


def _largest(
    ranks: Sequence[int],
    steps: Sequence[int],
    own_ns: dict[int, dict[int, int]],
    median_ns: dict[int, int],
) -> GridCell | None:
    cells = [
        GridCell(rank, step, max(0, own_ns[step][rank] - median_ns[step]))
        for step in steps
        for rank in ranks
        if rank in own_ns[step]
    ]
    return max(cells, key=lambda cell: cell.beyond_ns, default=None)


def _parts(numbers: Sequence[int], most: int) -> list[Sequence[int]]:
    """`numbers` in parts of a power of two each, `most` parts at most."""
    size = 1
    while size * most < len(numbers):
        size *= 2
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]
