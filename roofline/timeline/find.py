"""A typical profiled step and the slowest one as lanes of events, bounded in number."""

from collections.abc import Sequence
from statistics import median_low
from typing import Any, Final, Literal

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.points.kernel_points import KernelKey
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.timeline.activity import activities
from gpuprof.roofline.timeline.device import Lanes, idle_lane, numbered_points, stream_lanes
from gpuprof.roofline.timeline.events import LABEL
from gpuprof.roofline.timeline.host import host_lanes
from gpuprof.roofline.timeline.merging import fair_shares, merged_pieces
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
    points = numbered_points(work, keys)
    found = []
    for role, position in _chosen(stretch.lengths_ns):
        window = window_of(capture, stretch.spans_ns[position])
        lanes = stream_lanes(capture, points, window)
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
    merged = []
    for _, lanes in found:
        shares = fair_shares([events.height for _, events in lanes], MOST_PIECES)
        merged.append(
            [
                merged_pieces(_labelled(events), most)
                for (_, events), most in zip(lanes, shares, strict=True)
            ]
        )
    labels = pl.concat(
        [
            _labels_of(events, pieces)
            for (_, lanes), parts in zip(found, merged, strict=True)
            for (_, events), pieces in zip(lanes, parts, strict=True)
        ]
    ).unique("label", keep="first", maintain_order=True)
    kept = _kept_labels(labels, [pieces for each in merged for pieces in each])
    steps = tuple(
        msgspec.structs.replace(step, lanes=_lanes(step, [lane for lane, _ in lanes], pieces, kept))
        for (step, lanes), pieces in zip(found, merged, strict=True)
    )
    rows = kept.unique("kept").sort("kept").select(LABEL.names()).iter_rows(named=True)
    return Timeline(
        definition=stretch.definition,
        of_steps=stretch.steps,
        ranks=ranks,
        labels=tuple(TimelineLabel(**row) for row in rows),
        steps=steps,
    )


def _labelled(events: pl.DataFrame) -> pl.DataFrame:
    """`events` with a number for what each says: of equal ones the same, in every lane."""
    return events.with_columns(label=events.select(LABEL.names()).hash_rows(seed=0))


def _labels_of(events: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """What the labels of `pieces`, which `events` were merged to, say."""
    return (
        _labelled(events)
        .join(pieces, on="label", how="semi")
        .select("label", *LABEL.names())
        .unique("label", keep="first", maintain_order=True)
    )


def _kept_labels(labels: pl.DataFrame, lanes: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Those of `labels` that pieces have, with the column kept: the number that they get.

    Where they are too many, those of the shortest times share one of their kind without a name.
    """
    used = (
        pl.concat([pieces.select("label", "busy_ns") for pieces in lanes])
        .group_by("label")
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


def _lanes(
    step: TimelineStep,
    lanes: Sequence[TimelineLane],
    pieces: Sequence[pl.DataFrame],
    kept: pl.DataFrame,
) -> tuple[TimelineLane, ...]:
    number_of = {
        (lane.process, lane.thread): number
        for number, lane in enumerate(lanes)
        if lane.kind == "call"
    }
    numbered = dict(kept.select("label", "kept").iter_rows())
    return tuple(
        msgspec.structs.replace(lane, **_columns(own, step.start_ns, numbered, number_of))
        for lane, own in zip(lanes, pieces, strict=True)
    )


def _columns(
    pieces: pl.DataFrame,
    zero_ns: int,
    numbered: dict[int, int],
    number_of: dict[tuple[int | None, int | None], int],
) -> dict[str, tuple[Any, ...]]:
    lengths = pieces["end_ns"] - pieces["start_ns"]
    columns: dict[str, tuple[Any, ...]] = {
        "starts_ns": tuple(pieces["start_ns"] - zero_ns),
        "lengths_ns": tuple(lengths),
        "labels": tuple(numbered[label] for label in pieces["label"]),
    }
    if (pieces["count"] > 1).any():
        columns |= {"counts": tuple(pieces["count"]), "busy_ns": tuple(pieces["busy_ns"])}
    if (pieces["rank_wait_ns"] > 0).any():
        columns["waited_ns"] = tuple(pieces["rank_wait_ns"].fill_null(0))
    if pieces["launched_ns"].is_not_null().any():
        threads = pieces.select("launching_process", "launching_thread").iter_rows()
        columns["launched_ns"] = tuple(pieces["launched_ns"] - zero_ns)
        columns["launched_from"] = tuple(number_of.get(thread) for thread in threads)
    return columns
