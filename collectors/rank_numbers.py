"""Numbers of ranks, and of how many there are: far more than any job has are damage."""

from typing import Annotated, Final, TypeAlias

import msgspec

MOST_RANKS: Final = 1_000_000
Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]
WorldSize: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]
