"""The patterns that pieces of a time line are filled with: colour alone tells nobody the class.

Each sign of a class (`gpuprof.roofline.classes`) has a pattern of its own; a circle has none.
Classes that share the sign of no work, a diamond, are told apart by theirs.
"""

from dataclasses import dataclass
from typing import Final

from gpuprof.roofline.classes import BottleneckClass, classes

_SIDE: Final = 6
_WIDE: Final = 12
_ROWS, _COLUMNS, _DOTS = "M0 1.5H{0}", "M1.5 0V{0}", "M1 2H3"
_RISING: Final = "M-1 1L1-1M0 {0}L{0} 0M{1} {2}L{2} {1}"
_FALLING: Final = "M-1 {1}L1 {2}M0 0L{0} {0}M{1}-1L{2} 1"
_OF_SIGN: Final = {
    "circle": ("", _SIDE),
    "square": (_ROWS, _SIDE),
    "triangle-up": (_COLUMNS, _SIDE),
    "triangle-left": (_COLUMNS, _WIDE),
    "triangle-right": (_FALLING, _SIDE),
    "triangle-down": (_ROWS + _COLUMNS, _SIDE),
    "cross": (_ROWS + _COLUMNS, _SIDE),
    "bowtie": (_ROWS, _WIDE),
    "hourglass": (_ROWS + _COLUMNS, _WIDE),
    "x": (_DOTS, _SIDE),
    "star": (_RISING + _FALLING, _SIDE),
    "hexagon": (_RISING, _SIDE),
    "pentagon": (_RISING, _WIDE),
}
# Of diamonds, in the order of their classes.
_OF_DIAMONDS: Final = (
    (_COLUMNS, _SIDE),
    (_RISING + _FALLING, _SIDE),
    (_FALLING, _SIDE),
    (_ROWS, _WIDE),
    (_COLUMNS, _WIDE),
    (_RISING + _FALLING, _WIDE),
    (_ROWS + _COLUMNS, _WIDE),
    (_ROWS, _SIDE),
    (_DOTS, _WIDE),
    (_RISING, _WIDE),
    (_FALLING, _WIDE),
)


@dataclass(frozen=True)
class FillPattern:
    """Lines in a square that is repeated; in the ground's colour on that of the class, if solid."""

    side: int
    path: str
    solid: bool
    stroke_width: int


def pattern_of(row: BottleneckClass) -> FillPattern:
    """The pattern of a class; without lines where its sign has none."""
    path, side = _OF_SIGN.get(row.mark, ("", _SIDE))
    if row.mark == "diamond":
        diamonds = [name for name, each in classes().items() if each.mark == row.mark]
        path, side = _OF_DIAMONDS[diamonds.index(row.name) % len(_OF_DIAMONDS)]
    solid = row.fill == "solid"
    return FillPattern(side, path.format(side, side - 1, side + 1), solid, 1 if solid else 2)
