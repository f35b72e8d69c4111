"""What a recording could not see, in plain sentences."""

import polars as pl

from gpuprof.collectors.joining.lost_launches import (
    device_launches,
    lost_count,
    lost_sentence,
    queued_sentence,
    still_queued,
    unnamed,
)
from gpuprof.collectors.nsys.activities import WHOLE_GRAPH
from gpuprof.collectors.nvtx_names import STEP


def missing(kernels: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame) -> list[str]:
    """Warnings about the frames of `activities` and `ranges`: absent, lost and unfinished rows."""
    warnings = _unlinked(kernels, calls) if kernels.height else [_no_gpu_work(calls, ranges)]
    whole = kernels.filter(pl.col("name").str.starts_with(WHOLE_GRAPH)).height
    if whole:
        warnings.append(
            f"{whole} CUDA graph launches were recorded as a whole; record with "
            "--cuda-graph-trace=node to see their kernels"
        )
    # gpuprof leaves the step open in which a program ends.
    unfinished = ranges.filter(pl.col("name") != STEP)["end_ns"].null_count()
    if unfinished:
        warnings.append(f"{unfinished} NVTX ranges were never closed; they have no end")
    busy = kernels["global_pid"].unique()
    if busy.len() > 1:
        elsewhere = sum(
            frame.filter(~pl.col("global_pid").is_in(busy.implode())).height
            for frame in (calls, ranges)
        )
        if elsewhere:
            warnings.append(
                f"{elsewhere} API calls and NVTX ranges of processes without GPU work are left out"
            )
    return warnings


def _no_gpu_work(calls: pl.DataFrame, ranges: pl.DataFrame) -> str:
    # API calls alone are no GPU work: a program that only counts devices makes some.
    seen = [
        f"{frame.height} {what}"
        for frame, what in ((calls, "API calls"), (ranges, "NVTX ranges"))
        if frame.height
    ]
    found = " and ".join(seen) or "no events at all"
    return (
        f"no GPU activity recorded: the export holds {found}; record with `nsys profile "
        "--trace=cuda,nvtx` and let the program reach its GPU work"
    )


def _unlinked(kernels: pl.DataFrame, calls: pl.DataFrame) -> list[str]:
    if not calls.height:
        return ["no CUDA API calls recorded: kernels have no launch"]
    key = ["global_pid", "correlation"]
    warnings = []
    orphans = kernels.join(calls, on=key, how="anti").height
    if orphans:
        warnings.append(
            f"{orphans} of {kernels.height} pieces of device work have no launch recorded"
        )
    made = device_launches(calls, "global_pid")
    without_work = unnamed(made, kernels, "global_pid")
    queued = still_queued(without_work, made, "global_pid").height
    if queued:
        warnings.append(queued_sentence(queued))
    dropped = max(0, lost_count(without_work, kernels) - queued)
    if dropped:
        warnings.append(lost_sentence(dropped, made.height))
    return warnings
