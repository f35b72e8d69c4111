"""The names and texts of all blocks of a trace, each distinct one once, with numbers for rows.

Most blocks have the same names and shapes: held by block they took more than the columns of numbers
of a trace, and were made into Python's and polars' texts over again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

TextNumbers = npt.NDArray[np.uint32]

# With more the next blocks begin anew: where most differ, looking for equal ones only costs memory.
_MOST: Final = 1 << 16
_NAMES: Final = msgspec.json.Decoder(list[str])


class Texts:
    """Texts by number, that of null 0."""

    def __init__(self) -> None:
        self._values: list[str | None] = [None]
        self._series: pl.Series | None = None

    def __len__(self) -> int:
        return len(self._values)

    def extend(self, values: Sequence[str | None]) -> None:
        """Give `values` the next numbers."""
        self._values += values

    def seal(self) -> None:
        """Take in no more, and hold them as a column."""
        self._series = pl.Series(self._values, dtype=pl.String)
        self._values = []

    def of(self, numbers: pl.Series) -> pl.Series:
        """The texts of `numbers`, once nothing is added any more."""
        if self._series is None:
            self.seal()
        assert self._series is not None
        return self._series.gather(numbers).alias(numbers.name)


@dataclass(frozen=True)
class NumberedTexts:
    """What the codes of one block stand for: code 0 is null, and so is number 0 of `texts`."""

    texts: Texts
    # By code, of the block's names and of its other texts.
    names: TextNumbers
    others: TextNumbers
    # The numbers of all names so far that each of the file's marks is on.
    marked: Mapping[str, TextNumbers]


class FileTexts:
    """Numbers the texts of blocks, which several threads read at once.

    Each distinct name is looked at once for whether each of `marks` is on it.
    """

    def __init__(self, marks: Mapping[str, Callable[[str], bool]]) -> None:
        self._lock = Lock()
        self._marks = marks
        self._start_over()

    def numbered(self, names: Sequence[bytes], others: Sequence[bytes]) -> NumberedTexts:
        """The numbers of a block's `names`, as quoted in JSON, and of its `others`, JSON values.

        Raises what msgspec's decoder does, or polars' `ComputeError`, where any is no UTF-8.
        """
        with self._lock:
            if len(self._texts) > _MOST:
                self._texts.seal()
                self._start_over()
            # Decoded before any has a number: of damaged ones none is known.
            new_names = [name for name in names if name not in self._names]
            read_names = _NAMES.decode(b"[" + b",".join(new_names) + b"]")
            new_others = [text for text in others if text not in self._others]
            # Most blocks have none: what polars asks of an empty column takes longer.
            read_others = (
                plain_text(pl.Series(new_others, dtype=pl.Binary)).to_list() if new_others else []
            )
            if new_names:
                self._mark(read_names)
            self._add(self._names, new_names, read_names)
            self._add(self._others, new_others, read_others)
            return NumberedTexts(
                self._texts,
                _numbers(self._names, names),
                _numbers(self._others, others),
                self._marked,
            )

    def _start_over(self) -> None:
        self._texts = Texts()
        self._names: dict[bytes, int] = {}
        self._others: dict[bytes, int] = {}
        self._marked = {mark: np.zeros(0, np.uint32) for mark in self._marks}

    def _mark(self, names: Sequence[str]) -> None:
        """Note which of `names`, that get the next numbers, have which mark."""
        first = len(self._texts)
        # Blocks that were numbered already keep what they have.
        self._marked = {
            mark: np.append(
                self._marked[mark],
                np.array(
                    [first + at for at, name in enumerate(names) if is_marked(name)], np.uint32
                ),
            )
            for mark, is_marked in self._marks.items()
        }

    def _add(
        self, known: dict[bytes, int], texts: Sequence[bytes], values: Sequence[str | None]
    ) -> None:
        first = len(self._texts)
        known.update(zip(texts, range(first, first + len(texts)), strict=True))
        self._texts.extend(values)


def _numbers(known: Mapping[bytes, int], texts: Sequence[bytes]) -> TextNumbers:
    """The numbers of `texts` by their codes, which begin with 1; that of code 0 is 0."""
    return np.array([0, *map(known.__getitem__, texts)], np.uint32)


def plain_text(column: pl.Series) -> pl.Series:
    """JSON values as text on one line, in Kineto's own spacing; null where absent.

    Raises polars' `ComputeError` where any is no UTF-8.
    """
    text: pl.Series = column.cast(pl.String)
    if text.str.contains("\n", literal=True).any():
        text = text.str.replace_all(r",\s*\n\s*", ", ").str.replace_all(r"\s*\n\s*", "")
    return text.set((text == "") | (text == "null"), None)
