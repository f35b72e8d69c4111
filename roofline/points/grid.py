"""What a kernel's grid leaves idle: too few blocks, or blocks that do not divide evenly.

Blocks are handed out to multiprocessors evenly, so of B blocks of equal work the busiest of M gets
ceil(B / M), and the average is B / M. For at least 1 - B / (M ceil(B / M)) of the kernel's time a
multiprocessor stands idle; how many blocks fit on one at a time only adds to that.

Source: NVIDIA, Matrix Multiplication Background User's Guide, "Wave Quantization".
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """The launches of some work together."""

    # Of their time.
    idle_fraction: float
    # Of the launch configuration in which most of that is lost.
    blocks: int
    multiprocessors: int

    @property
    def underfilled(self) -> bool:
        """Whether some multiprocessors get no block at all."""
        return self.blocks < self.multiprocessors

    @property
    def sentence(self) -> str:
        """For people, without the time that it costs."""
        plural = "" if self.blocks == 1 else "s"
        sentence = f"{self.blocks} block{plural} for {self.multiprocessors} multiprocessors"
        if self.underfilled:
            return sentence
        average = self.blocks / self.multiprocessors
        return f"{sentence}: {math.ceil(average)} on some, {average:.3g} on average"


def idle_fraction(blocks: int, multiprocessors: int) -> float:
    """The share of a kernel's time that a multiprocessor stands idle at least."""
    return 1 - blocks / (multiprocessors * math.ceil(blocks / multiprocessors))


def grid_of(times_ns: Iterable[tuple[int | None, int]], multiprocessors: int | None) -> Grid | None:
    """What the grids of launches leave idle, from (blocks, how long all with as many took).

    None where a number of blocks is not known, and where nothing is idle.
    """
    lost: dict[int, float] = {}
    total_ns = 0
    for blocks, duration_ns in times_ns:
        if not multiprocessors or not blocks or blocks < 0:
            return None
        lost[blocks] = duration_ns * idle_fraction(blocks, multiprocessors)
        total_ns += duration_ns
    worst = max(lost, key=lambda blocks: lost[blocks], default=None)
    if worst is None or not multiprocessors or not lost[worst]:
        return None
    return Grid(sum(lost.values()) / total_ns, worst, multiprocessors)
