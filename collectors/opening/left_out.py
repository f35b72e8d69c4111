"""Files of a folder that could not be read, in the words of warnings."""

from collections.abc import Sequence
from typing import Final

# A folder may hold ten thousand files of another kind.
_NAMED: Final = 10


def left_out_warnings(problems: Sequence[str]) -> tuple[str, ...]:
    """The first of `problems`, each of one file, and the number of the others."""
    sentences = tuple(f"left out: {problem}" for problem in problems[:_NAMED])
    more = len(problems) - _NAMED
    if more <= 0:
        return sentences
    return (*sentences, f"left out: {more} more {'file' if more == 1 else 'files'}")
