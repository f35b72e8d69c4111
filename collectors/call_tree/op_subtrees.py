"""What lies below each operator, as slices of one order."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, Integers, thread_codes

Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Subtrees:
    """The operators of one process in the order of a walk down each thread's tree.

    `order` holds the rows of the table in that order; the operators below the one at place i stand
    at the places i + 1 to end[i] - 1.
    """

    order: Integers
    end: Integers

    def with_any_below(self, rows: Booleans) -> Booleans:
        """Which rows of the table have any of `rows` below them."""
        before = np.concatenate(([0], np.cumsum(rows[self.order])))
        places = np.arange(len(self.order))
        return self._by_row(before[self.end] > before[places + 1])

    def below_any(self, rows: Booleans) -> Booleans:
        """Which rows of the table lie below one of `rows`."""
        outer = np.flatnonzero(rows[self.order])
        inside = np.zeros(len(self.order) + 1, np.int64)
        np.add.at(inside, outer + 1, 1)
        np.add.at(inside, self.end[outer], -1)
        return self._by_row(np.cumsum(inside)[:-1] > 0)

    def with_equal_below(self, codes: Integers) -> Booleans:
        """Which rows have one of the same code below them; a code of NONE equals no other."""
        here = codes[self.order]
        places = np.lexsort((np.arange(len(here)), here))
        found = np.zeros(len(here), np.bool_)
        this, following = places[:-1], places[1:]
        found[this] = (
            (here[this] == here[following]) & (here[this] != NONE) & (following < self.end[this])
        )
        return self._by_row(found)

    def _by_row(self, by_place: Booleans) -> Booleans:
        result = np.empty(len(self.order), np.bool_)
        result[self.order] = by_place
        return result


def subtrees(ops: pl.DataFrame) -> Subtrees:
    """The trees of `ops`: all operators of one process, parents before children.

    Its op_id must count the rows from 0.
    """
    size = _sizes(ops["parent_id"].fill_null(NONE).to_numpy())
    # On each thread the operators below one follow it directly.
    order = np.argsort(thread_codes(ops)[0], kind="stable")
    return Subtrees(order, np.arange(len(order)) + size[order])


def _sizes(parent: Integers) -> Integers:
    """How many operators each one holds, itself included."""
    sizes = [1] * len(parent)
    for position, above in zip(range(len(parent) - 1, -1, -1), parent[::-1].tolist(), strict=True):
        if above != NONE:
            sizes[above] += sizes[position]
    return np.array(sizes, np.int64)
