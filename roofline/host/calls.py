"""Self time of operators and of runtime calls: what the host itself spent where."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import (
    NONE,
    Integers,
    nesting_order,
    parents,
    thread_codes,
)
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.host.windows import (
    Windows,
    begun_within,
    length_ns,
    step_windows,
    union_within_ns,
)
from gpuprof.roofline.host_figures import HostCall

# Names in the table; a trace of a compiler's own work has thousands of others.
_MOST: Final = 200


@dataclass(frozen=True)
class HostCalls:
    """The calls of the profiled steps, and the time outside of all of them."""

    calls: tuple[HostCall, ...] = ()
    other_self_ns: int = 0
    outside_ns: int | None = None


def host_calls(capture: Capture) -> HostCalls:
    """Calls of a one-rank capture that began in its profiled steps, by name.

    Operators and runtime calls of a thread are one tree, so each moment of a thread is the self
    time of one call at most. Calls without an end are left out.
    """
    windows = step_windows(capture)
    calls = _calls(capture)
    calls = calls.filter(pl.Series(begun_within(windows, calls["start_ns"].to_numpy())))
    if calls.is_empty():
        return HostCalls()
    numbers = _numbered_names(calls)
    (threads,) = thread_codes(calls)
    starts, ends = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    order = nesting_order(starts, ends)
    numbers, threads, starts, ends = (each[order] for each in (numbers, threads, starts, ends))
    above = parents(threads, starts, ends)
    inside = np.flatnonzero(above != NONE)
    inner_ns = np.zeros(len(starts), np.int64)
    within_ns = np.minimum(ends[inside], ends[above[inside]]) - starts[inside]
    np.add.at(inner_ns, above[inside], within_ns)
    lengths_ns = ends - starts
    rows = (
        pl.DataFrame(
            {
                "number": numbers,
                "row": order,
                "self_ns": lengths_ns - inner_ns,
                "outer_ns": np.where(_below_its_like(numbers, above), 0, lengths_ns),
            }
        )
        .group_by("number", maintain_order=True)
        .agg(
            pl.col("row").first(),
            pl.len().alias("calls"),
            pl.col("outer_ns").sum(),
            pl.col("self_ns").sum(),
        )
        .sort("self_ns", descending=True, maintain_order=True)
    )
    named = pl.concat([calls.select("kind", "name")[rows["row"]], rows], how="horizontal")
    return HostCalls(
        tuple(
            HostCall(name=name, kind=kind, calls=count, total_ns=total_ns, self_ns=self_ns)
            for kind, name, count, total_ns, self_ns in named.head(_MOST)
            .select("kind", "name", "calls", "outer_ns", "self_ns")
            .iter_rows()
        ),
        int(rows["self_ns"].slice(_MOST).sum()),
        _outside_ns(windows, starts, ends),
    )


def _calls(capture: Capture) -> pl.DataFrame:
    columns = ("name", "process", "thread", "start_ns", "end_ns")
    parts = [
        frame.select(*columns, kind=pl.lit(kind))
        for frame, kind in ((capture.ops, "operator"), (capture.launches, "runtime"))
    ]
    return pl.concat(parts).drop_nulls("end_ns")


def _numbered_names(calls: pl.DataFrame) -> Integers:
    """A number for each name of each kind: quicker to compare than the names."""
    names = pl.col("name").cast(pl.Categorical).to_physical().cast(pl.Int64)
    return calls.select(names * 2 + (pl.col("kind") == "operator"))["name"].to_numpy()


def _below_its_like(names: Integers, above: Integers) -> Booleans:
    """Which calls are made within another call of the same name, by the numbers of `names`."""
    found = np.zeros(len(above), np.bool_)
    pending = np.flatnonzero(above != NONE)
    ancestor = above[pending]
    while len(pending):
        alike = names[ancestor] == names[pending]
        found[pending[alike]] = True
        further = ~alike & (above[ancestor] != NONE)
        pending, ancestor = pending[further], above[ancestor[further]]
    return found


def _outside_ns(windows: Windows | None, starts: Integers, ends: Integers) -> int:
    if windows is None:
        windows = np.array([starts.min()]), np.array([ends.max()])
    return length_ns(windows) - union_within_ns(windows, starts, ends)
