"""Stages of a pipeline: how long they wait for each other, and how long they would at least."""

from collections.abc import Sequence

import polars as pl

from gpuprof.roofline.parallelism_figures import PipelineStage, Pipelining
from gpuprof.roofline.ranks.collective_kinds import RECEIVE, SEND
from gpuprof.roofline.ranks.parallelism.placed import JobFrames, steps_of


def pipelining(frames: JobFrames) -> Pipelining | None:
    """All ranks that send and receive; None unless there are two, and all of them do both."""
    own = frames.collectives.filter(pl.col("kind").is_in((SEND, RECEIVE)))
    if own.is_empty():
        return None
    steps = steps_of(frames.collectives)
    optimizer = frames.work.filter(pl.col("phase") == "optimizer")
    stages = (
        own.group_by("rank")
        .agg(
            waiting_ns=pl.col("exposed_ns").sum(),
            sends=(pl.col("kind") == SEND).sum(),
            receives=(pl.col("kind") == RECEIVE).sum(),
        )
        .join(frames.steps.group_by("rank").agg(pl.col("working_ns").sum()), on="rank")
        .join(
            optimizer.group_by("rank").agg(optimizer_ns=pl.col("device_ns").sum()),
            on="rank",
            how="left",
        )
        .sort("rank")
    )
    if stages.height < 2 or stages.select(pl.min("sends", "receives")).min_horizontal().item() == 0:
        return None
    working = stages["working_ns"] - stages["optimizer_ns"].fill_null(0)
    micro_batches, chunks = _schedule([count / steps for count in stages["sends"]])
    return Pipelining(
        stages=tuple(
            PipelineStage(
                rank=rank, working_ns=round(work / steps), waiting_ns=round(waiting / steps)
            )
            for rank, work, waiting in zip(
                stages["rank"], working, stages["waiting_ns"], strict=True
            )
        ),
        micro_batches=micro_batches,
        chunks=chunks,
    )


def _schedule(sends: Sequence[float]) -> tuple[int | None, int | None]:
    """Micro-batches and chunks a stage, from how often each stage sends in a step.

    Of p stages with v chunks and m micro-batches the first and the last send m (2 v - 1) times, the
    others 2 m v times. Of two stages, and where several pipelines differ, they are open.
    """
    ends, middle = min(sends), max(sends)
    number = middle - ends
    if not all(count.is_integer() for count in sends) or not number or middle % (2 * number):
        return None, None
    chunks = middle / (2 * number)
    if set(sends) != {ends, middle} or ends != number * (2 * chunks - 1):
        return None, None
    return (int(number), int(chunks)) if list(sends).count(ends) == 2 else (None, None)
