"""How long collectives wait for other ranks, where a capture holds all of them.

A collective's kernel begins when its rank arrives and ends when the last one has come and the data
is there. The rank that came last waited for nobody, so the shortest time over the ranks is that of
the transfer, and the rest of each rank's time is waiting. That needs no common clock. It does not
hold where ranks do different things: broadcasts, reductions to one rank, sends and receives.
"""

from typing import Final

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.bus_bandwidth import find_collective
from gpuprof.roofline.work.attribution import launch_of_kernels, steps_at

# In which all ranks do the same.
_ALIKE: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
NO_WAITS: Final = pl.DataFrame(schema={"kernel_row": pl.Int64, "rank_wait_ns": pl.Int64})
_SAME: Final = ("group", "collective", "message_bytes", "step")


def waits_for_ranks(capture: Capture, rank: int) -> pl.DataFrame:
    """Columns kernel_row (the row among the kernels of `rank`) and rank_wait_ns.

    Only collectives that all ranks of their group recorded have a row. They are the same one where
    their sequence numbers in the group are; without those, where they are the nth of their kind and
    size that was launched in the step, and all ranks launched equally many.
    """
    names = capture.kernels["collective"].drop_nulls().unique().to_list()
    alike = [name for name in names if (row := find_collective(name)) and row.name in _ALIKE]
    if len(capture.processes) < 2 or not alike:
        return NO_WAITS
    found = [_collectives(capture.rank(process.rank), alike) for process in capture.processes]
    rows = pl.concat(found)
    numbered = rows.filter(pl.col("sequence").is_not_null())
    ordered = rows.filter(pl.col("sequence").is_null(), pl.col("step").is_not_null()).with_columns(
        nth=pl.col("at_ns").rank("ordinal").over("rank", *_SAME),
        many=pl.len().over("rank", *_SAME),
    )
    ordered = ordered.filter(pl.col("many").n_unique().over(_SAME) == 1)
    waits = [
        _waits(numbered, ("group", "collective", "sequence")),
        _waits(ordered, (*_SAME, "nth")),
    ]
    return pl.concat(waits).filter(pl.col("rank") == rank).select("kernel_row", "rank_wait_ns")


def _collectives(capture: Capture, names: list[str]) -> pl.DataFrame:
    """The collectives of one rank among `names`, each with its step and the time of its launch."""
    kernels = capture.kernels.with_columns(kernel_row=pl.int_range(pl.len(), dtype=pl.Int64))
    kernels = kernels.filter(pl.col("collective").is_in(names), pl.col("group").is_not_null())
    at_ns = kernels["start_ns"]
    if capture.launches.height:
        tables = {**capture.tables(), "kernels": kernels.drop("kernel_row")}
        own = Capture(capture.manifest, capture.processes, **tables)
        at_ns = launch_of_kernels(own)["launch_ns"]
    step = steps_at(capture, at_ns.fill_null(-1))
    if not (capture.steps["phase"] == "profiled").any():
        # All of the trace is one.
        step = pl.select(pl.when(at_ns.is_not_null()).then(pl.lit(0, pl.Int32))).to_series()
    return kernels.select(
        "rank",
        "kernel_row",
        "group",
        "collective",
        "message_bytes",
        "group_size",
        "sequence",
        at_ns=at_ns,
        step=step,
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )


def _waits(rows: pl.DataFrame, same: tuple[str, ...]) -> pl.DataFrame:
    """The waits of those of `rows` that all ranks of the group have, by equal values of `same`."""
    complete = (pl.len().over(same) == pl.col("group_size")) & (
        pl.col("rank").n_unique().over(same) == pl.col("group_size")
    )
    wait_ns = pl.col("duration_ns") - pl.col("duration_ns").min().over(same)
    return (
        rows.with_columns(rank_wait_ns=wait_ns, complete=complete)
        .filter("complete")
        .select("rank", "kernel_row", "rank_wait_ns")
    )
