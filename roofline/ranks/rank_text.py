"""Numbers of ranks in words."""

from collections.abc import Sequence
from typing import Final

_MOST_SPANS: Final = 12


def ranks_text(ranks: Sequence[int]) -> str:
    """ "0-2, 5", of many the first."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in spans[:_MOST_SPANS]]
    more = ("...",) if len(spans) > _MOST_SPANS else ()
    return ", ".join((*shown, *more))
