"""Launches whose device work is missing: a profiler that runs out of buffers drops records."""

from typing import Final

import polars as pl

# Calls that put kernels on a device: cudaLaunchKernelExC, cuLaunchKernel, hipExtModuleLaunchKernel.
# Copies are left out: one within the host's memory makes no device work.
_LAUNCHING: Final = (
    r"^(?:cuda|cu|hip)(?:(?:Ext|Hcc)?(?:Module)?Launch(?:Cooperative)?(?:Kernel|Grid)|GraphLaunch)"
)
_BEGIN_CAPTURE: Final = r"^(?:cuda|cu|hip)StreamBeginCapture"
_END_CAPTURE: Final = r"^(?:cuda|cu|hip)StreamEndCapture"


def device_launches(calls: pl.DataFrame, process: str = "process") -> pl.DataFrame:
    """The rows of `calls` that put kernels on a device and have a correlation id.

    `process` is the column that tells processes apart. Launches into a stream that is being
    captured make nodes of a graph and no work: they are not among the rows.
    """
    # Of a million calls each distinct name is looked at once.
    names = calls["name"].unique()

    def named(pattern: str) -> pl.Expr:
        return pl.col("name").is_in(names.filter(names.str.contains(pattern)).to_list())

    launches = calls.filter(named(_LAUNCHING) & pl.col("correlation").is_not_null())
    captures = (
        calls.select("name", process, "start_ns")
        .filter(named(_BEGIN_CAPTURE) | named(_END_CAPTURE))
        .select(
            process,
            "start_ns",
            change=pl.when(named(_BEGIN_CAPTURE)).then(1).otherwise(-1),
        )
        .sort("start_ns", maintain_order=True)
    )
    if captures.is_empty() or launches.is_empty():
        return launches
    captures = captures.with_columns(depth=pl.col("change").cum_sum().over(process))
    # A capture that ends without a beginning began before the recording.
    before = captures.group_by(process).agg(before=-pl.col("depth").min().clip(upper_bound=0))
    return (
        launches.sort("start_ns", maintain_order=True)
        .join_asof(captures.drop("change"), on="start_ns", by=process, check_sortedness=False)
        .join(before, on=process, how="left", nulls_equal=True, maintain_order="left")
        .filter(pl.col("depth").fill_null(0) + pl.col("before").fill_null(0) <= 0)
        .drop("depth", "before")
    )


def unnamed(
    launches: pl.DataFrame, kernels: pl.DataFrame, process: str = "process"
) -> pl.DataFrame:
    """Those of `launches`, as `device_launches` gives them, that no row of `kernels` names."""
    columns = launches[process], kernels[process]
    processes = {edge for column in columns for edge in (column.min(), column.max())}
    of_one = len(processes) == 1 and not any(column.null_count() for column in columns)
    # One number is looked up much more quickly than two.
    keys = ["correlation"] if of_one else [process, "correlation"]
    return launches.join(kernels.select(keys), on=keys, how="anti", nulls_equal=True)


def still_queued(
    missing: pl.DataFrame, launches: pl.DataFrame, process: str = "process"
) -> pl.DataFrame:
    """Those of `missing`, as `unnamed` gives them, that follow all others of their process.

    Their work was still in the queue when the recording ended: nothing was lost before that.
    """
    seen = launches.join(missing, on=[process, "correlation"], how="anti", nulls_equal=True)
    last = seen.group_by(process).agg(last_ns=pl.col("start_ns").max())
    return (
        missing.join(last, on=process, how="left", nulls_equal=True, maintain_order="left")
        .filter(pl.col("start_ns") > pl.col("last_ns"))
        .drop("last_ns")
    )


def queued_sentence(queued: int) -> str:
    """A warning for `queued` launches whose work the recording did not live to see."""
    last = "last launch" if queued == 1 else f"last {queued} launches"
    return f"the recording ended before the device work of its {last}"


def lost_count(missing: pl.DataFrame, kernels: pl.DataFrame) -> int:
    """How many of the launches `missing`, as `unnamed` gives them, have no device work for certain.

    A row of `kernels` without a correlation id, as ROCm writes for RCCL, may be that of one.
    """
    return max(0, missing.height - kernels["correlation"].null_count())


def lost_sentence(lost: int, launches: int) -> str:
    """A warning for `lost` of `launches` without device work."""
    return (
        f"{lost} of {launches} launches ({lost / launches:.1%}) have no device work "
        "recorded: device time is too low, and what depends on it is left out"
    )
