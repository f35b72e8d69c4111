"""Levels of memory in the counters of a launch: bytes that passed each, and its peak.

Which counters tell is in levels.toml, each row with its source.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import msgspec

from gpuprof.roofline.measured.submetrics import peak_per_second, total


@dataclass(frozen=True)
class LevelTraffic:
    """Bytes that one launch moved through a level, by `counter`.

    `peak_bytes_per_s` is that counter's own, None where it was not collected.
    """

    counter: str
    bytes_moved: int
    peak_bytes_per_s: float | None


def level_traffic(counters: Mapping[str, float]) -> dict[str, LevelTraffic]:
    """Traffic by level (DRAM, L2, L1), by the first counter of the table that was collected."""
    found: dict[str, LevelTraffic] = {}
    for row in levels_table().level:
        count = None if row.level in found else total(counters, row.counter)
        if count is None:
            continue
        peak = peak_per_second(counters, row.counter, row.clock)
        found[row.level] = LevelTraffic(
            row.counter,
            round(count * row.bytes_per_count),
            None if peak is None else peak * row.bytes_per_count,
        )
    return found


class _Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: str
    counter: str
    bytes_per_count: int
    clock: str
    source: str


class VectorPeak(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The instruction whose peak is that of its precision on the vector units."""

    precision: str
    counter: str
    operations: int
    source: str


class LevelsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """levels.toml."""

    level: tuple[_Level, ...]
    vector: tuple[VectorPeak, ...]


@lru_cache(maxsize=1)
def levels_table() -> LevelsTable:
    """The table of counters, in the order in which they are taken."""
    text = files("gpuprof.roofline.measured").joinpath("levels.toml").read_bytes()
    return msgspec.toml.decode(text, type=LevelsTable)
