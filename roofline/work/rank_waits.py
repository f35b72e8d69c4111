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
    own = _collectives(capture, alike)
    rows = pl.concat(
        [
            _in_steps(own.filter(pl.col("rank") == each.rank), capture, each.rank)
            for each in capture.processes
        ]
    )
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
    """The collectives among `names` of all ranks, each with the time of its launch.

    Of a rank without any launch in the capture it is the time at which the kernel began.
    """
    rows = capture.kernels.with_columns(
        kernel_row=pl.int_range(pl.len(), dtype=pl.Int64).over("rank")
    ).filter(pl.col("collective").is_in(names), pl.col("group").is_not_null())
    key = ["rank", "process", "correlation"]
    launches = capture.launches.join(rows, on=key, how="semi")
    small = Capture(
        capture.manifest, capture.processes, kernels=rows.drop("kernel_row"), launches=launches
    )
    launching = capture.launches["rank"].unique().implode()
    return rows.with_columns(launch_of_kernels(small)["launch_ns"]).select(
        *("rank", "kernel_row", "group", "collective", "message_bytes", "group_size", "sequence"),
        at_ns=pl.when(pl.col("rank").is_in(launching)).then("launch_ns").otherwise("start_ns"),
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )


def _in_steps(rows: pl.DataFrame, capture: Capture, rank: int) -> pl.DataFrame:
    """`rows`, of one rank, with the profiled step that each is of; without steps all are of one."""
    steps = capture.steps.filter(pl.col("rank") == rank, pl.col("phase") == "profiled")
    known = pl.col("at_ns").is_not_null()
    if steps.is_empty():
        return rows.with_columns(step=pl.when(known).then(pl.lit(0, pl.Int32)))
    own = Capture(capture.manifest, capture.processes, steps=steps)
    return rows.with_columns(step=steps_at(own, rows["at_ns"].fill_null(-1)))


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
