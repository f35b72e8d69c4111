"""The names of what the host did as numbers: a few texts stand for many rows."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, Integers
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.capture import Capture, once_a_capture


@dataclass(frozen=True)
class NumberedNames:
    """Texts that differ, and for each row the number of its own, -1 where it has none."""

    texts: pl.Series
    numbers: Integers

    def where(self, chosen: Booleans) -> Booleans:
        """Which rows have one of the texts that are `chosen`, one entry a text."""
        return np.append(chosen, False)[self.numbers]

    def at(self, rows: Integers) -> "NumberedNames":
        """The names of `rows`, -1 for none, and only those texts that they have."""
        numbers = values_at(self.numbers, rows)
        found = np.zeros(len(self.texts) + 1, np.bool_)
        found[numbers] = True
        place = np.where(found, np.cumsum(found) - 1, NONE)
        place[NONE] = NONE
        return NumberedNames(self.texts.filter(pl.Series(found[:-1])), place[numbers])


def numbered(names: pl.Series) -> NumberedNames:
    """`names` with numbers for them."""
    texts = names.drop_nulls().unique()
    codes = names.cast(pl.Enum(texts)).to_physical().cast(pl.Int64)
    return NumberedNames(texts, (codes.fill_null(NONE) if codes.null_count() else codes).to_numpy())


@once_a_capture
def op_names(capture: Capture) -> NumberedNames:
    """Of each row of `ops`."""
    return numbered(capture.ops["name"])


@once_a_capture
def launch_names(capture: Capture) -> NumberedNames:
    """Of each row of `launches`."""
    return numbered(capture.launches["name"])


def values_at(values: Integers, rows: Integers) -> Integers:
    """`values` at `rows`, -1 where a row is."""
    if not len(values):
        return np.full(len(rows), NONE, np.int64)
    found = values.take(rows)
    found[rows == NONE] = NONE
    return found
