"""What a recording could not see, in plain sentences."""

from typing import Final

import polars as pl

from gpuprof.collectors.nsys.activities import WHOLE_GRAPH

_LAUNCHING: Final = r"^(cuda|cu)(Launch(Cooperative)?Kernel|GraphLaunch)"
_CAPTURING: Final = r"^(cuda|cu)StreamBeginCapture"


def missing(kernels: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame) -> list[str]:
    """Warnings about the frames of `activities` and `ranges`: absent, lost and unfinished rows."""
    warnings = _unlinked(kernels, calls) if kernels.height else [_no_gpu_work(calls, ranges)]
    whole = kernels.filter(pl.col("name").str.starts_with(WHOLE_GRAPH)).height
    if whole:
        warnings.append(
            f"{whole} CUDA graph launches were recorded as a whole; record with "
            "--cuda-graph-trace=node to see their kernels"
        )
    unfinished = ranges["end_ns"].null_count()
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
    # A launch into a stream that is being captured makes a graph node and no work.
    capturing = calls.filter(pl.col("name").str.contains(_CAPTURING))["global_pid"].unique()
    made = calls.filter(
        pl.col("name").str.contains(_LAUNCHING) & ~pl.col("global_pid").is_in(capturing.implode())
    )
    dropped = made.join(kernels, on=key, how="anti").height
    if dropped:
        warnings.append(f"{dropped} of {made.height} launches have no device work recorded")
    return warnings
