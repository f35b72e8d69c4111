"""Which launch of a trace each launch of a report is that holds the first ones of each kind.

So Nsight Compute takes them with `--filter-mode per-launch-config`: of each function, grid, block
and shared memory the first so many of a window, whatever their template arguments are.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import polars as pl

from gpuprof.collectors.joining.launch_matching import base_name, matched

# Function, grid and block of a launch.
_Kind: TypeAlias = tuple[str, str | None, str | None]


def match_first_launches(trace: pl.DataFrame, report: pl.DataFrame) -> pl.DataFrame:
    """Columns trace_row, report_row and certain, as of `match_launches`.

    Both frames are those of `launch_keys`, that of the trace of the window alone and with the
    column shared_memory. `certain` is false where launches of one kind differ in that.
    """
    positions: dict[_Kind, list[int]] = defaultdict(list)
    for position, kind in enumerate(_kinds(trace)):
        positions[kind].append(position)
    rows, shared = trace["row"].to_list(), trace["shared_memory"].to_list()
    matches = []
    taken: Counter[_Kind] = Counter()
    for row, kind in zip(report["row"], _kinds(report), strict=True):
        number, ours = taken[kind], positions.get(kind, [])
        taken[kind] += 1
        if number < len(ours):
            alike = len({shared[at] for at in ours}) == 1
            matches.append((rows[ours[number]], row, alike))
    return matched(matches, trace)


def _kinds(keys: pl.DataFrame) -> Iterable[_Kind]:
    for name, grid, block in keys.select("kernel", "grid", "block").iter_rows():
        yield base_name(name), grid, block
