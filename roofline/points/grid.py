"""What a kernel's grid leaves idle: too few blocks, or blocks that do not divide evenly.

Blocks are handed out to multiprocessors evenly, so of B blocks of equal work the busiest of M gets
ceil(B / M), and the average is B / M. For at least 1 - B / (M ceil(B / M)) of the kernel's time a
multiprocessor stands idle; how many blocks fit on one at a time only adds to that. A persistent
kernel deals out the tiles of its result in the same way (see tiles.py).

Source: NVIDIA, Matrix Multiplication Background User's Guide, "Wave Quantization".
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Launches:
    """All launches with one grid. `blocks` is None where that is not known."""

    blocks: int | None
    duration_ns: int
    # How many tiles the blocks deal out among themselves, by each reading of the kernel's name.
    tiles: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grid:
    """The launches of some work together."""

    # Of their time.
    idle_fraction: float
    # "block" or "tile": what is dealt out in the launches in which most of that is lost.
    piece: str
    pieces: int
    multiprocessors: int

    @property
    def underfilled(self) -> bool:
        """Whether some multiprocessors get nothing at all."""
        return self.pieces < self.multiprocessors

    @property
    def sentence(self) -> str:
        """For people, without the time that it costs."""
        plural = "" if self.pieces == 1 else "s"
        sentence = f"{self.pieces} {self.piece}{plural} for {self.multiprocessors} multiprocessors"
        if self.underfilled:
            return sentence
        average = self.pieces / self.multiprocessors
        return f"{sentence}: {math.ceil(average)} on some, {average:.3g} on average"


def idle_fraction(pieces: int, multiprocessors: int, workers: int | None = None) -> float:
    """The share of a kernel's time that a multiprocessor stands idle at least.

    `workers` of the multiprocessors take pieces, all of them where it is None.
    """
    rounds = math.ceil(pieces / (workers or multiprocessors))
    return 1 - pieces / (multiprocessors * rounds)


def grid_of(launches: Iterable[Launches], multiprocessors: int | None) -> Grid | None:
    """What the grids of `launches` leave idle.

    None where a number of blocks is not known, and where nothing is idle.
    """
    lost_ns = 0.0
    total_ns = 0
    worst: tuple[float, str, int] = (0.0, "", 0)
    for each in launches:
        if not multiprocessors or not each.blocks or each.blocks < 0:
            return None
        idle, piece, pieces = _idle(each, each.blocks, multiprocessors)
        lost_ns += each.duration_ns * idle
        total_ns += each.duration_ns
        worst = max(worst, (each.duration_ns * idle, piece, pieces))
    if not multiprocessors or not worst[0]:
        return None
    return Grid(lost_ns / total_ns, worst[1], worst[2], multiprocessors)


def _idle(launches: Launches, blocks: int, multiprocessors: int) -> tuple[float, str, int]:
    """The share of the time that is idle at least, what is dealt out, and how many."""
    if not launches.tiles or blocks > multiprocessors:
        return idle_fraction(blocks, multiprocessors), "block", blocks
    return min(
        (idle_fraction(tiles, multiprocessors, blocks), "tile", tiles) for tiles in launches.tiles
    )
