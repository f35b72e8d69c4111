"""A trace that several processes were merged into, as one set of tables a process.

Correlation ids count within a process, and device events do not name the process that launched
them. So a kernel belongs to the one process that has its id; where several have it, to the one
process that the other kernels of its stream belong to.
"""

from pathlib import Path
from typing import Final

import polars as pl

from gpuprof.collectors.errors import CaptureError

_PUTS_WORK_ON_A_DEVICE: Final = "(?i)launch|memcpy|memset"
_STREAM: Final = ("device", "context", "stream")


def by_process(
    path: Path, frames: dict[str, pl.DataFrame]
) -> list[tuple[int | None, dict[str, pl.DataFrame]]]:
    """Each process that worked, with its rows of the raw tables `frames`, by process id.

    A trace of one process keeps all its rows, in `frames` itself. Raises `CaptureError` where
    several processes launched work and nothing tells which of them a kernel belongs to.
    """
    kernels, launches, ops = frames["kernels"], frames["launches"], frames["ops"]
    working = launches.filter(pl.col("name").str.contains(_PUTS_WORK_ON_A_DEVICE))
    if working.is_empty() and kernels.is_empty():
        working = ops
    processes = working["process"].unique().sort().to_list()
    if len(processes) <= 1:
        process = processes[0] if processes else _most_rows(launches, ops, frames["ranges"])
        frames["kernels"] = kernels.with_columns(process=pl.lit(process, pl.Int64))
        return [(process, frames)]
    owned = {**frames, "kernels": _with_processes(path, kernels, launches, processes)}
    return [
        (
            process,
            {name: frame.filter(pl.col("process") == process) for name, frame in owned.items()},
        )
        for process in processes
    ]


def _with_processes(
    path: Path, kernels: pl.DataFrame, launches: pl.DataFrame, processes: list[int]
) -> pl.DataFrame:
    """`kernels` with the process that launched each."""
    calls = launches.select("process", "correlation").drop_nulls().unique()
    callers = calls.group_by("correlation").agg(
        caller=pl.when(pl.len() == 1).then(pl.col("process").first())
    )
    found = kernels.drop("process").join(
        callers, on="correlation", how="left", maintain_order="left"
    )
    streams = (
        found.drop_nulls("caller")
        .group_by(_STREAM)
        .agg(user=pl.when(pl.col("caller").n_unique() == 1).then(pl.col("caller").first()))
    )
    found = found.join(streams, on=_STREAM, how="left", nulls_equal=True, maintain_order="left")
    found = found.with_columns(process=pl.coalesce("caller", "user"))
    unknown = found["process"].null_count()
    if unknown:
        names = ", ".join(map(str, processes))
        raise CaptureError(
            path,
            f"a merged trace: processes {names} launched work, and it is unknown which of them "
            f"{unknown} of {found.height} pieces of device work belong to (correlation ids count "
            "within a process)",
            remedy="pass the trace of each process by itself",
        )
    return found.drop("caller", "user")


def _most_rows(*frames: pl.DataFrame) -> int | None:
    """The process of most rows of the first of `frames` that has any."""
    for frame in frames:
        if frame.height:
            return int(frame["process"].mode().sort()[0])
    return None
