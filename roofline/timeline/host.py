"""The lanes of a host's threads: ranges, modules, operators, and calls that launch and wait."""

from typing import Any, Final

import polars as pl

from gpuprof.collectors import host_events
from gpuprof.collectors.call_tree.nesting import NONE, enclosing
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.idle.host_calls import kinds_of_calls
from gpuprof.roofline.timeline.device import Lanes
from gpuprof.roofline.timeline.events import as_events, in_rows, with_places
from gpuprof.roofline.timeline.window import Window
from gpuprof.roofline.timeline_figures import LaneKind, TimelineLane
from gpuprof.roofline.work.attribution import rows_of

_THREAD: Final = ("process", "thread")
# A trace without steps is one window, whose operators are all copied.
_OF_OPS: Final = (
    *("op_id", "parent_id", "name", *_THREAD, "start_ns", "end_ns"),
    *("module", "file", "line"),
)
# Rows of ranges within ranges, and of modules within modules.
_DEEPEST: Final = 6
_DEEPEST_MODULE: Final = 4


def host_lanes(capture: Capture, window: Window) -> tuple[Lanes, int]:
    """The lanes of each thread, a process's first and then the busiest; and events left out.

    Of operators and calls the outermost ones. `capture` has one rank.
    """
    ops = with_places(window.of(capture.ops.select(_OF_OPS)))
    outer = ops.filter(pl.col("parent_id").is_null())
    ranges = window.of(capture.ranges)
    own = (pl.col("domain") == host_events.DOMAIN).fill_null(False)
    parts: tuple[tuple[LaneKind, pl.DataFrame], ...] = (
        ("range", ranges.filter(~own).with_columns(detail="domain", kind=pl.lit("range"))),
        ("host", ranges.filter(own).with_columns(kind=pl.lit("host"))),
        ("module", ops.filter(pl.col("module").is_not_null().any().over(_THREAD))),
        ("operator", outer.with_columns(kind=pl.lit("operator"))),
        ("call", _calls(capture, ops, window)),
    )
    busiest = (
        pl.concat([outer.select(_THREAD), parts[-1][1].select(_THREAD), ranges.select(_THREAD)])
        .group_by(_THREAD, maintain_order=True)
        .len()
        .sort(
            # The first thread of a process has its number.
            pl.col("process") == pl.col("thread"),
            "len",
            *_THREAD,
            descending=[True, True, False, False],
            nulls_last=True,
        )
    )
    lanes: Lanes = []
    left_out = 0
    by_thread = [(kind, _by_thread(kind, table)) for kind, table in parts]
    for process, thread, _ in busiest.iter_rows():
        for kind, of_threads in by_thread:
            events = of_threads.get((process, thread))
            if events is None:
                continue
            if kind == "module":
                rows = module_rows(events)
            else:
                rows = in_rows(events, _DEEPEST if kind in ("range", "host") else 1)
            for row, found in rows.items():
                lane = TimelineLane(kind=kind, process=process, thread=thread, row=row)
                lanes.append((lane, found))
            if kind in ("range", "host"):
                left_out += events.height - sum(found.height for found in rows.values())
    return lanes, left_out


def _by_thread(kind: LaneKind, table: pl.DataFrame) -> dict[tuple[Any, ...], pl.DataFrame]:
    """The events of `table` by process and thread; of modules the operators, as they are."""
    events = table if kind == "module" else as_events(table, *_THREAD)
    return events.partition_by(_THREAD, as_dict=True, maintain_order=True, include_key=False)


def module_rows(ops: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """When a thread is in which module: by depth, from the operators called there.

    `ops` are all of the thread, also those that are in none. A visit is from the first to the last
    of those that follow each other in one module, and ends where another begins.
    """
    ordered = ops.sort("start_ns", maintain_order=True).select(
        "start_ns", "end_ns", parts=pl.col("module").str.split(".")
    )
    deepest = min(_DEEPEST_MODULE, int(ordered["parts"].list.len().max() or 0))  # type: ignore[arg-type]
    rows = {}
    for depth in range(deepest):
        path = (
            pl.when(pl.col("parts").list.len() > depth)
            .then(pl.col("parts").list.head(depth + 1).list.join("."))
            .alias("module")
        )
        visits = (
            ordered.with_columns(path)
            .with_columns(visit=pl.col("module").rle_id())
            .drop_nulls("module")
            .group_by("visit", maintain_order=True)
            .agg(pl.col("start_ns").first(), pl.col("end_ns").max(), pl.col("module").first())
            .with_columns(end_ns=pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1)))
        )
        rows[depth] = as_events(visits, name=pl.col("module"), kind=pl.lit("module"))
    return rows


def _calls(capture: Capture, ops: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Runtime and driver calls, with the innermost operator around each and what it waits for."""
    calls = window.of(capture.launches.with_columns(waits=kinds_of_calls(capture)))
    parents = rows_of(ops, ops["parent_id"])
    around = pl.Series(enclosing(ops, calls, "start_ns", parents), dtype=pl.Int64)
    known = ops.select(
        "module", "place", operator="name", row=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    return calls.with_columns(
        kind=pl.lit("call"),
        row=around.set(around == NONE, None),
    ).join(known, on="row", how="left", maintain_order="left")
