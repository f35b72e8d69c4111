"""The lanes of devices: work in the order of its streams, and times without any."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, Integers
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.intervals import covered_ns, merged
from gpuprof.roofline.points.kernel_points import KERNEL_KEY, KernelKey
from gpuprof.roofline.points.points import COPY_NAME
from gpuprof.roofline.timeline.events import as_events, in_rows, with_places
from gpuprof.roofline.timeline.window import Window
from gpuprof.roofline.timeline_figures import TimelineLane
from gpuprof.roofline.work.attribution import launch_rows, of_operators
from gpuprof.roofline.work.work import Work

_STREAM: Final = ("device", "context", "stream")
_WHY: Final = ("kind", "what", "call", "operator", "kernel", "place", "detail")

Lanes = list[tuple[TimelineLane, pl.DataFrame]]


def stream_lanes(capture: Capture, work: Work, keys: Sequence[KernelKey], window: Window) -> Lanes:
    """A lane for each stream, and one more for what overlaps in it.

    Of a one-rank capture with this `work`; a point is the place in `keys` of what it is of.
    """
    kernels = window.of(capture.kernels.with_columns(kernel_row=pl.int_range(pl.len())))
    rows = kernels["kernel_row"].to_numpy()
    launch = launch_rows(capture)[rows]
    launched = pl.Series(launch).set(pl.Series(launch == NONE), None)
    called = of_operators(capture.ops, kernels["op_id"], "name", "module", "file", "line")
    events = as_events(
        kernels.with_columns(
            with_places(called).select("module", "place", operator="name"),
            launched_ns=capture.launches["start_ns"].gather(launched),
            launching_process="process",
            launching_thread=capture.launches["thread"].gather(launched),
        ).join(
            _numbered_points(work, keys, rows), on="kernel_row", how="left", maintain_order="left"
        ),
        *_STREAM,
    )
    lanes: Lanes = []
    for (device, context, stream), own in sorted(
        events.partition_by(_STREAM, as_dict=True, include_key=False).items(),
        key=lambda item: in_order(item[0]),
    ):
        for row, found in in_rows(own).items():
            lane = TimelineLane(
                kind="stream", device=device, context=context, stream=stream, row=row
            )
            lanes.append((lane, found))
    return lanes


def _numbered_points(work: Work, keys: Sequence[KernelKey], rows: Integers) -> pl.DataFrame:
    """Of the kernels at `rows` of the capture the columns kernel_row, rank_wait_ns and point."""
    last = work.kernels["kernel_row"].max()
    asked = np.zeros(max(rows.max(initial=0), last if isinstance(last, int) else 0) + 1, np.bool_)
    asked[rows] = True
    own = work.kernels.filter(pl.Series(asked[work.kernels["kernel_row"].to_numpy()]))
    kernels = own.with_columns(COPY_NAME).select(*KERNEL_KEY, "kernel_row", "rank_wait_ns")
    numbered = pl.DataFrame(
        list(keys), schema={name: kernels.schema[name] for name in KERNEL_KEY}, orient="row"
    ).with_row_index("point")
    return kernels.join(numbered, on=KERNEL_KEY, how="left", nulls_equal=True).select(
        pl.col("kernel_row").cast(pl.Int64), pl.col("point").cast(pl.Int64), "rank_wait_ns"
    )


def in_order(numbers: Sequence[int | None]) -> tuple[tuple[bool, int], ...]:
    """What sorts devices and streams by their numbers, unknown ones first."""
    return tuple((number is not None, number or 0) for number in numbers)


def idle_lane(pieces: pl.DataFrame, step: int, kernels: pl.DataFrame) -> Lanes:
    """Times of `step` without work on any device; both tables are as `idle_events` needs them."""
    events = idle_events(pieces.filter(pl.col("step") == step), kernels)
    return [] if events.is_empty() else [(TimelineLane(kind="idle"), as_events(events))]


def idle_events(pieces: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """One event for what the host did at a time without device work, with the columns of a label.

    `pieces` are `gpuprof.roofline.idle.culprits.named_pieces`, which are cut wherever anything
    begins or ends on the host, and have no work of the profiled steps in them. That of others may
    still run, as `kernels` of the capture tell: where it does, a device is not idle.
    """
    own = pieces.with_columns(end_ns=pl.col("start_ns") + pl.col("nanoseconds"))
    own = _without_work(own, kernels).sort("start_ns", maintain_order=True)
    begins = pl.any_horizontal(
        pl.col("start_ns") != pl.col("end_ns").shift(1),
        *(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in ("step", *_WHY)),
    )
    together = (
        own.with_columns(number=begins.fill_null(True).cum_sum())
        .group_by("number", maintain_order=True)
        .agg(pl.col("start_ns", *_WHY).first(), pl.col("end_ns").last())
        .with_columns(pl.col(pl.Enum).cast(pl.String))
    )
    said = [pl.when(pl.col(name) != "").then(pl.col(name)) for name in ("call", "kernel", "detail")]
    return together.select(
        "start_ns",
        "end_ns",
        "operator",
        "place",
        name="what",
        waits="kind",
        kind=pl.lit("idle"),
        detail=pl.concat_str(said, separator=", ", ignore_nulls=True),
    )


def _without_work(idle: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """The parts of `idle` in which none of `kernels` runs."""
    busy = merged(kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy())
    before, after = (covered_ns(busy, idle[edge].to_numpy()) for edge in ("start_ns", "end_ns"))
    touched = pl.Series(after > before, dtype=pl.Boolean)
    if not touched.any():
        return idle
    starts, ends = busy
    parts = []
    for row in idle.filter(touched).iter_rows(named=True):
        first = np.searchsorted(ends, row["start_ns"], side="right")
        last = np.searchsorted(starts, row["end_ns"], side="left")
        begins = [row["start_ns"], *ends[first:last].tolist()]
        stops = [*starts[first:last].tolist(), row["end_ns"]]
        parts += [
            {**row, "start_ns": begin, "end_ns": stop}
            for begin, stop in zip(begins, stops, strict=True)
            if stop > begin
        ]
    return pl.concat([idle.filter(~touched), pl.DataFrame(parts, schema=idle.schema)])
