"""Levels of memory in the counters of a launch: bytes that passed each, and its peak.

Which counters tell is in metrics.toml, each row with its source.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuprof.roofline.measured.metric_table import metric_table
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
    for row in metric_table().level:
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
