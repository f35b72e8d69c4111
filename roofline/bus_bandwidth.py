"""Bus bandwidth of collectives, by the definitions of nccl-tests (doc/PERFORMANCE.md).

Algorithm bandwidth is message bytes over time. Times a collective's factor it is bus bandwidth:
what each rank's link carried, which can be compared with the link's rate in one direction whatever
the number of ranks. The message is the whole buffer: all that a rank gathers, or that it has before
it scatters. Where the switch reduces (NVLS, SHARP), less crosses the links than the factor says.

The collectives are in `collectives.toml`.
"""

from functools import cache
from importlib.resources import files
from typing import Literal, get_args

import msgspec

# Those that `gpuprof bench` runs.
CollectiveName = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"]
COLLECTIVES: tuple[CollectiveName, ...] = get_args(CollectiveName)


class Collective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table; the head of `collectives.toml` says what each column means."""

    name: str
    spellings: tuple[str, ...]
    operators: tuple[str, ...] = ()
    output: Literal["input", "n inputs", "share of input"] | None = None
    factor: Literal["2(n-1)/n", "(n-1)/n", "1"] | None = None

    def output_elements(self, input_elements: int, ranks: int | None) -> int | None:
        """The elements of a rank's result; None where they are not known."""
        if self.output == "input":
            return input_elements
        if self.output is None or not ranks:
            return None
        return input_elements * ranks if self.output == "n inputs" else input_elements // ranks

    def bus_factor(self, ranks: int) -> float | None:
        """Bytes over each rank's link for each byte of the message; 0 for one rank.

        None where no single factor is right.
        """
        if self.factor is None:
            return None
        if ranks < 2:
            return 0.0
        share = (ranks - 1) / ranks
        return {"2(n-1)/n": 2 * share, "(n-1)/n": share, "1": 1.0}[self.factor]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    collective: tuple[Collective, ...]


def find_collective(name: str) -> Collective | None:
    """The collective that is called `name`, or that torch spells so; None where there is none."""
    return _by_spelling().get(name) or _by_spelling().get(name.lower().replace("_", ""))


def bus_factor(collective: CollectiveName, ranks: int) -> float:
    """Bytes over each rank's link for each byte of the message; 0 for one rank.

    >>> bus_factor("all-reduce", 8), bus_factor("all-gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    factor = _by_spelling()[collective].bus_factor(ranks)
    assert factor is not None, f"{collective} has no single factor"
    return factor


@cache
def collectives_by_operator() -> dict[str, Collective]:
    """The collective of each operator that launches one by itself."""
    return {operator: row for row in _rows() for operator in row.operators}


@cache
def _by_spelling() -> dict[str, Collective]:
    """The table by each spelling and by name."""
    return {spelling: row for row in _rows() for spelling in (row.name, *row.spellings)}


def _rows() -> tuple[Collective, ...]:
    text = files("gpuprof.roofline").joinpath("collectives.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).collective
