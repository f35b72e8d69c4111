"""The batch sizes that serving engines write into the ranges around captures and replays.

Seen in traces of vLLM and SGLang: `capture_32_FULL` and `capture_32_DECODE` around a capture,
`execute_32_context_0(...)_generation_32(...)` and `step[DECODE bs=32]` around a replay.
"""

import re
from typing import Final

import polars as pl

_OF_A_CAPTURE: Final = re.compile(r"^capture_(\d{1,9})(?!\d)")
# polars' own syntax, which has no look-ahead.
_OF_A_REPLAY: Final = r"^execute_(\d{1,9})_|\bbs=(\d{1,9})\b"


def captured_size(label: str | None) -> int | None:
    """The batch size in the name of the range around a capture."""
    found = _OF_A_CAPTURE.search(label or "")
    return int(found[1]) if found else None


def replayed_sizes(replayed: pl.DataFrame, ranges: pl.DataFrame) -> list[int | None]:
    """For each row of `replayed` the batch size that a range around its launch names.

    The innermost range counts of those that name one. `replayed` has process, thread, launch_ns.
    """
    named = ranges.select(
        "process",
        "thread",
        "start_ns",
        "end_ns",
        size=pl.coalesce(
            pl.col("name").str.extract(_OF_A_REPLAY, 1), pl.col("name").str.extract(_OF_A_REPLAY, 2)
        ).cast(pl.Int64),
    ).drop_nulls("size")
    if named.is_empty():
        return [None] * replayed.height
    launches = replayed.select("process", "thread", "launch_ns").unique()
    sizes = (
        launches.join_where(
            named.rename({"process": "at_process", "thread": "at_thread"}),
            pl.col("process") == pl.col("at_process"),
            pl.col("thread") == pl.col("at_thread"),
            pl.col("launch_ns") >= pl.col("start_ns"),
            pl.col("launch_ns") < pl.col("end_ns"),
        )
        .sort("start_ns")
        .group_by("process", "thread", "launch_ns")
        .agg(pl.col("size").last())
    )
    keys = ["process", "thread", "launch_ns"]
    found: list[int | None] = replayed.join(sizes, on=keys, how="left", maintain_order="left")[
        "size"
    ].to_list()
    return found
