"""Steps of a trace that marks none itself, from the user ranges around them.

A step begins with its range and lasts until the next one begins, as in `gpuprof run --step-range`;
the last one, and one after which more time passes than it took, until its own range ends. The first
ones are warm-up where each took longer than `_WARM_UP` times the median.

Names that differ in numbers only ("step 1", "step 2") are one.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from msgspec import structs

from gpuprof.collectors import schema
from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.nvtx_names import STEP
from gpuprof.roofline.numbered_names import without_numbers
from gpuprof.roofline.work.attribution import launch_of_kernels

_WARM_UP: Final = 1.5
# Ranges of one name evidently mark steps where there are so many, with this share of all launches
# in them, and nearly all of the launches between the first and the last.
_FEWEST: Final = 3
_OF_ALL: Final = 0.5
_BETWEEN: Final = 0.95
_ADVICE: Final = "No steps in the trace"


@dataclass(frozen=True)
class _Marks:
    """Ranges of one name on one thread, none within another, in order of time."""

    name: str
    start_ns: Integers
    end_ns: Integers
    # What tells the innermost range around each from others; -1 where there is none.
    outer: Integers


def with_steps_of_range(capture: Capture, name: str) -> Capture:
    """`capture` with the ranges called `name` as its steps, whatever steps it had.

    Ranges called so with a number behind count where none is called exactly so. Raises
    `ValueError`, which names ranges that there are, where a rank has none, and for a capture that
    was analysed before, whose device work has its steps.
    """
    if any(info.attributed for info in capture.processes):
        raise ValueError("a stored capture keeps its steps: give the trace that it was made of")
    return _with_steps(capture, name)


def with_evident_steps(capture: Capture) -> Capture:
    """`capture` with steps where it has none and the ranges of one name evidently mark them."""
    if not capture.steps.is_empty() or capture.ranges.is_empty():
        return capture
    return _with_steps(capture, None)


def _with_steps(capture: Capture, name: str | None) -> Capture:
    steps, processes = [], []
    for info in capture.processes:
        rank = capture.rank(info.rank)
        marks = _evident(rank) if name is None else _named(rank.ranges, name)
        if marks is None:
            if name is not None:
                raise ValueError(_known_names(rank.ranges))
            return capture
        label = f"ranges named {marks.name!r}"
        steps.append(_steps(marks, info.rank, label))
        warnings = tuple(said for said in info.warnings if not said.startswith(_ADVICE))
        processes.append(structs.replace(info, steps_found_by=label, warnings=warnings))
    tables = {**capture.tables(), "steps": pl.concat(steps)}
    return Capture(capture.manifest, tuple(processes), **tables)


def _named(ranges: pl.DataFrame, name: str) -> _Marks | None:
    exact = ranges.filter(pl.col("name") == name)
    if exact.is_empty():
        numbered = rf"^{re.escape(name)}[\s:_#-]*\d+$"
        exact = ranges.filter(pl.col("name").str.contains(numbered))
    return _marks(exact, name)


def _marks(ranges: pl.DataFrame, name: str) -> _Marks | None:
    """The closed ranges on the thread that has most of them, without those within another."""
    closed = ranges.filter(pl.col("end_ns").is_not_null())
    if closed.is_empty():
        return None
    thread = closed.group_by("thread").len().sort("len", "thread", descending=[True, False])[0]
    own = closed.filter(pl.col("thread").eq_missing(thread["thread"][0])).sort(
        "start_ns", "end_ns", descending=[False, True]
    )
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end_ns)[:-1]])
    outermost = start_ns >= reached
    outer = own["outer"].to_numpy() if "outer" in own.columns else np.full(own.height, -1)
    return _Marks(name, start_ns[outermost], end_ns[outermost], outer[outermost])


def _evident(capture: Capture) -> _Marks | None:
    """The ranges that evidently mark steps; of several names those that hold the others.

    Those of gpuprof itself, however few, where it ran in the program.
    """
    if (own := _named(capture.ranges, STEP)) is not None:
        return own
    launches = launch_of_kernels(capture)["launch_ns"].fill_null(capture.kernels["start_ns"])
    times_ns = np.sort(launches.to_numpy())
    if not times_ns.size:
        return None
    ranges = _with_outer(capture.ranges.filter(pl.col("end_ns").is_not_null()))
    alike = ranges.with_columns(without_numbers(ranges["name"]).alias("alike"))
    found = []
    for (name,), group in alike.group_by("alike", maintain_order=True):
        if group.height < _FEWEST:
            continue
        marks = _marks(group, str(name))
        if marks is not None and _marks_steps(marks, times_ns):
            found.append(marks)
    return min(found, key=lambda marks: len(marks.start_ns), default=None)


def _marks_steps(marks: _Marks, times_ns: Integers) -> bool:
    # Layers stand within steps of which there may be only two.
    within_several = len(np.unique(marks.outer)) > 1
    if len(marks.start_ns) < _FEWEST or within_several:
        return False
    row = np.searchsorted(marks.start_ns, times_ns, side="right") - 1
    inside = (row >= 0) & (times_ns < marks.end_ns[np.maximum(row, 0)])
    between = (times_ns >= marks.start_ns[0]) & (times_ns < marks.end_ns[-1])
    held = int(inside.sum())
    each = np.bincount(row[inside], minlength=len(marks.start_ns))
    return bool(
        held >= _OF_ALL * len(times_ns) and held >= _BETWEEN * int(between.sum()) and each.min() > 0
    )


def _with_outer(ranges: pl.DataFrame) -> pl.DataFrame:
    """`ranges` with outer: the row of the innermost range around each on its thread, else -1."""
    order = ranges.sort("start_ns", "end_ns", descending=[False, True])
    outer = np.full(order.height, -1, np.int64)
    open_on: dict[int | None, list[tuple[int, int]]] = {}
    for row, (thread, end_ns) in enumerate(order.select("thread", "end_ns").iter_rows()):
        stack = open_on.setdefault(thread, [])
        while stack and stack[-1][1] < end_ns:
            stack.pop()
        outer[row] = stack[-1][0] if stack else -1
        stack.append((row, end_ns))
    return order.with_columns(outer=pl.Series(outer))


def _steps(marks: _Marks, rank: int, label: str) -> pl.DataFrame:
    start_ns, own_end_ns = marks.start_ns, marks.end_ns
    next_ns = np.append(start_ns[1:], own_end_ns[-1])
    # Something else ran in between, such as an evaluation.
    apart = next_ns - own_end_ns > own_end_ns - start_ns
    end_ns = np.where(apart, own_end_ns, next_ns)
    lengths_ns = end_ns - start_ns
    slow = lengths_ns > _WARM_UP * np.median(lengths_ns)
    warmup = int(np.argmin(slow)) if not slow.all() else 0
    frame = pl.DataFrame(
        {
            "index": np.arange(len(start_ns)),
            "start_ns": start_ns,
            "end_ns": end_ns,
            "host_ns": lengths_ns,
        }
    )
    return schema.conform(
        "steps",
        frame.with_columns(
            rank=pl.lit(rank),
            phase=pl.when(pl.col("index") < warmup)
            .then(pl.lit("warmup"))
            .otherwise(pl.lit("profiled")),
            found_by=pl.lit(label),
        ),
    )


def _known_names(ranges: pl.DataFrame) -> str:
    """Names of ranges that repeat, those that take longest first."""
    totals = (
        ranges.with_columns(without_numbers(ranges["name"]))
        .filter(pl.col("end_ns").is_not_null())
        .group_by("name")
        .agg(pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
        .sort("ns", "name", descending=[True, False])
        .head(5)
    )
    if totals.is_empty():
        return "no range was recorded"
    listed = ", ".join(f"{name!r} ({count})" for name, count, _ in totals.iter_rows())
    return f"the ranges that take longest are {listed}"
