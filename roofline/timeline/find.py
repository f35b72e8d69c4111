"""A typical profiled step and the slowest one as lanes of events, bounded in number."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Final, Literal

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.points.kernel_points import KernelKey
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.timeline.activity import activities
from gpuprof.roofline.timeline.device import Lanes, idle_lane, stream_lanes
from gpuprof.roofline.timeline.events import LABEL
from gpuprof.roofline.timeline.host import host_lanes
from gpuprof.roofline.timeline.merging import alone_in_pieces, fair_shares, merged_pieces
from gpuprof.roofline.timeline.ranks import JobRanks
from gpuprof.roofline.timeline.window import window_of
from gpuprof.roofline.timeline_figures import (
    Timeline,
    TimelineLabel,
    TimelineLane,
    TimelineRank,
    TimelineStep,
)
from gpuprof.roofline.work.work import Work

# A page of 6 MB has room for about four times as many.
MOST_PIECES: Final = 12_000
MOST_LANES: Final = 40
MOST_LABELS: Final = 3_000


def find_timeline(
    capture: Capture,
    work: Work,
    stretch: Stretch | None,
    idle: pl.DataFrame | None,
    keys: Sequence[KernelKey],
    job: JobRanks,
) -> Timeline | None:
    """The steps of an attributed one-rank capture with this `work`; None where nothing ran in one.

    `idle` are the named pieces of the time without device work, where they are known, and `keys`
    what the kernel points of the analysis are of. `job` is what is known of all ranks.
    """
    if stretch is None:
        return None
    rank = capture.processes[0].rank
    ranks = job.shown_beside(rank)
    found = []
    for role, position in _chosen(stretch.lengths_ns):
        window = window_of(capture, stretch.spans_ns[position])
        lanes = stream_lanes(capture, work, keys, window)
        if idle is not None:
            lanes += idle_lane(idle, position, capture.kernels)
        of_host, left_out = host_lanes(capture, window)
        room = max(0, MOST_LANES - len(lanes))
        left_out += sum(events.height for _, events in (*of_host[room:], *lanes[MOST_LANES:]))
        step = TimelineStep(
            role=role,
            index=None if stretch.indices is None else stretch.indices[position],
            start_ns=window.step_ns,
            length_ns=window.end_ns - window.step_ns,
            lead_ns=window.step_ns - window.begin_ns,
            lanes=(),
            activities=activities(capture.samples, window),
            left_out=left_out,
        )
        of_ranks = [lane for each in ranks for lane in job.lanes(each, rank, window)]
        found.append((step, [*of_host[:room], *lanes[:MOST_LANES], *of_ranks]))
    if not any(lanes for _, lanes in found):
        return None
    return _bounded(found, stretch, ranks)


def _chosen(lengths_ns: Sequence[int]) -> list[tuple[Literal["typical", "slowest"], int]]:
    """The positions of the step nearest to the median, and of the slowest if that is another."""
    median_ns = median_low(lengths_ns)
    chosen: list[tuple[Literal["typical", "slowest"], int]] = [
        ("typical", lengths_ns.index(median_ns))
    ]
    longest_ns = max(lengths_ns)
    if longest_ns > median_ns:
        chosen.append(("slowest", lengths_ns.index(longest_ns)))
    return chosen


def _bounded(
    found: Sequence[tuple[TimelineStep, Lanes]], stretch: Stretch, ranks: tuple[TimelineRank, ...]
) -> Timeline:
    """The time line of these steps, with as many pieces and labels as there is room for."""
    shares = [
        share
        for _, lanes in found
        for share in fair_shares([events.height for _, events in lanes], MOST_PIECES)
    ]
    # All lanes as one table: each question to it takes as long as to one lane.
    events = _labelled([events for _, lanes in found for _, events in lanes])
    pieces = _pieces(events, shares)
    labels = (
        events.join(pieces, on=("lane", "label"), how="semi")
        .select("label", *LABEL.names())
        .unique("label", keep="first", maintain_order=True)
    )
    kept = _kept_labels(labels, pieces)
    columns = _columns(pieces, kept)
    ends = np.searchsorted(pieces["lane"].to_numpy(), np.arange(len(shares)), side="right").tolist()
    parts = iter([slice(first, last) for first, last in zip([0, *ends[:-1]], ends, strict=True)])
    steps = tuple(
        msgspec.structs.replace(
            step, lanes=_lanes(step, [(lane, next(parts)) for lane, _ in lanes], columns)
        )
        for step, lanes in found
    )
    rows = kept.unique("kept").sort("kept").select(LABEL.names()).iter_rows(named=True)
    return Timeline(
        definition=stretch.definition,
        of_steps=stretch.steps,
        ranks=ranks,
        labels=tuple(TimelineLabel(**row) for row in rows),
        steps=steps,
    )


def _labelled(lanes: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The events of all `lanes` with the number of their lane and one for what each says.

    Of equal ones that is the same, in every lane.
    """
    lane = np.repeat(np.arange(len(lanes)), [events.height for events in lanes])
    events = pl.concat(lanes)
    label = events.select(LABEL.names()).hash_rows(seed=0)
    return events.with_columns(lane=pl.Series(lane), label=label)


def _pieces(events: pl.DataFrame, shares: Sequence[int]) -> pl.DataFrame:
    """The pieces of each lane, at most as many as its share."""
    alone = alone_in_pieces(events)
    heights = np.bincount(events["lane"].to_numpy(), minlength=len(shares)).tolist()
    parts, begin = [], 0
    for height, most in zip(heights, shares, strict=True):
        own = alone.slice(begin, height)
        parts.append(own if height <= most else merged_pieces(own, most))
        begin += height
    return pl.concat(parts)


def _kept_labels(labels: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Those of `labels` that pieces have, with the column kept: the number that they get.

    Where they are too many, those of the shortest times share one of their kind without a name.
    """
    used = (
        pieces.group_by("label")
        .agg(pl.col("busy_ns").sum())
        .join(labels.with_row_index("order"), on="label")
        .sort("busy_ns", "order", descending=[True, False])
        .drop("order")
    )
    rest = used[MOST_LABELS:].with_columns(
        pl.lit(None, dtype).alias(name) if dtype != pl.String else pl.lit("").alias(name)
        for name, dtype in LABEL.items()
        if name != "kind"
    )
    together = pl.concat([used[:MOST_LABELS], rest])
    numbers = together.select(LABEL.names()).unique(maintain_order=True).with_row_index("kept")
    return together.join(numbers, on=LABEL.names(), nulls_equal=True, maintain_order="left")


@dataclass(frozen=True)
class _Columns:
    """What the pieces of all lanes say, one entry a piece."""

    start_ns: list[int]
    length_ns: list[int]
    label: list[int]
    count: list[int]
    busy_ns: list[int]
    waited_ns: list[int]
    launched_ns: list[int | None]
    launched_from: list[tuple[int | None, int | None]]


def _columns(pieces: pl.DataFrame, kept: pl.DataFrame) -> _Columns:
    labels = pieces.select("label").join(
        kept.select("label", "kept"), on="label", how="left", maintain_order="left"
    )
    return _Columns(
        start_ns=pieces["start_ns"].to_list(),
        length_ns=(pieces["end_ns"] - pieces["start_ns"]).to_list(),
        label=labels["kept"].to_list(),
        count=pieces["count"].to_list(),
        busy_ns=pieces["busy_ns"].to_list(),
        waited_ns=pieces["rank_wait_ns"].fill_null(0).to_list(),
        launched_ns=pieces["launched_ns"].to_list(),
        launched_from=pieces.select("launching_process", "launching_thread").rows(),
    )


def _lanes(
    step: TimelineStep, lanes: Sequence[tuple[TimelineLane, slice]], columns: _Columns
) -> tuple[TimelineLane, ...]:
    number_of = {
        (lane.process, lane.thread): number
        for number, (lane, _) in enumerate(lanes)
        if lane.kind == "call"
    }
    return tuple(
        msgspec.structs.replace(lane, **_of_lane(columns, part, step.start_ns, number_of))
        for lane, part in lanes
    )


def _of_lane(
    columns: _Columns,
    part: slice,
    zero_ns: int,
    number_of: dict[tuple[int | None, int | None], int],
) -> dict[str, tuple[Any, ...]]:
    """What a lane has of `columns`, those of its pieces, with times from `zero_ns` on."""
    own: dict[str, tuple[Any, ...]] = {
        "starts_ns": tuple(start_ns - zero_ns for start_ns in columns.start_ns[part]),
        "lengths_ns": tuple(columns.length_ns[part]),
        "labels": tuple(columns.label[part]),
    }
    if max(columns.count[part], default=0) > 1:
        own |= {"counts": tuple(columns.count[part]), "busy_ns": tuple(columns.busy_ns[part])}
    if max(columns.waited_ns[part], default=0) > 0:
        own["waited_ns"] = tuple(columns.waited_ns[part])
    launched = columns.launched_ns[part]
    if launched.count(None) < len(launched):
        own["launched_ns"] = tuple(
            None if launched_ns is None else launched_ns - zero_ns for launched_ns in launched
        )
        own["launched_from"] = tuple(map(number_of.get, columns.launched_from[part]))
    return own
