"""Which block of a persistent kernel does which tiles, in which order, decided beforehand."""

import heapq
from collections.abc import Iterable

import numpy as np
import torch


def schedule(items: Iterable[tuple[int, int, float]], blocks: int) -> torch.Tensor:
    """Items (tile, head, work) in turn to whichever block would be free first.

    Gives int32 (rounds, blocks, 2): the tile and the head that a block does in each round, -1 where
    it has no more; every block has none in the last. `work` is in any unit, with what an item takes
    at its start and end.
    """
    free = [(0.0, block) for block in range(blocks)]
    lists: list[list[tuple[int, int]]] = [[] for _ in range(blocks)]
    for tile, head, work in items:
        busy, block = heapq.heappop(free)
        lists[block].append((tile, head))
        heapq.heappush(free, (busy + work, block))
    table = np.full((max(map(len, lists)) + 1, blocks, 2), -1, dtype=np.int32)
    for block, own in enumerate(lists):
        table[: len(own), block] = own or table[:0, block]
    return torch.from_numpy(table)
