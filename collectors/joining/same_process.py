"""Two recordings of one process: Nsight Systems' beside a trace of PyTorch's profiler.

They are one rank and not two. The trace stays, for its kernels have operators; the other would only
count every kernel again.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.launch_matching import base_name

NSYS: Final = "nsys"
_EPOCH: Final = "unix epoch"
# Of the device time of both, in kernels of names that both have. Runs of one program differ in how
# often it chose another algorithm, other programs in nearly all.
_ALIKE: Final = 0.9


def without_second_recordings(captures: Sequence[Capture]) -> tuple[list[Capture], list[str]]:
    """`captures` without those of Nsight Systems of which another one is of the same process.

    With a sentence for each that is left out. A recording is a trace's if both name one process,
    or one rank; or if there is only one of each, and they do not tell of two processes at one time.
    Their kernels must be alike.
    """
    recordings = [one for one in captures if _is_recording(one)]
    traces = [one for one in captures if one.manifest.source != NSYS]
    kept, sentences = [], []
    for capture in captures:
        partner = _partner(capture, traces, alone=len(recordings) == len(traces) == 1)
        if partner is None:
            kept.append(capture)
            continue
        trace, why = partner
        sentences.append(
            f"left out: {capture.manifest.title}: Nsight Systems' recording of the same rank as "
            f"{trace.manifest.title} ({why}); each kernel counts once, as the trace has it"
        )
    return kept, sentences


def _is_recording(capture: Capture) -> bool:
    return capture.manifest.source == NSYS and len(capture.processes) == 1


def _partner(
    capture: Capture, traces: Sequence[Capture], *, alone: bool
) -> tuple[Capture, str] | None:
    """The trace of the process that `capture` recorded, and what tells."""
    if not _is_recording(capture):
        return None
    (process,) = capture.processes
    for trace in traces:
        for other in trace.processes:
            share = _alike(capture, trace, other.rank)
            if share < _ALIKE:
                continue
            if process.process is not None and process.process == other.process:
                return trace, f"both are of process {process.process}"
            if "order" not in (process.rank_from, other.rank_from):
                if process.rank == other.rank:
                    return trace, f"both are of rank {process.rank}"
                continue
            if alone and len(trace.processes) == 1 and not _side_by_side(capture, trace):
                return trace, f"the same kernels for {share:.0%} of the device time"
    return None


def _alike(capture: Capture, trace: Capture, rank: int) -> float:
    """The smaller of their shares of device time in kernels of names that both have."""
    times = [_time_by_name(capture.kernels), _time_by_name(trace.rank(rank).kernels)]
    common = times[0].select("name").join(times[1], on="name", how="semi")
    shares = []
    for each in times:
        total = sum(each["ns"].to_list())
        shared = sum(each.join(common, on="name", how="semi")["ns"].to_list())
        shares.append(shared / total if total else 0.0)
    return min(shares)


def _time_by_name(kernels: pl.DataFrame) -> pl.DataFrame:
    times = (
        kernels.filter(pl.col("kind").is_in(["kernel", "collective"]))
        .group_by("name")
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )
    # Sources print arguments differently.
    names = pl.Series("name", [base_name(name) for name in times["name"]], dtype=pl.String)
    return times.with_columns(names).group_by("name").agg(pl.col("ns").sum())


def _side_by_side(capture: Capture, trace: Capture) -> bool:
    """Whether they tell of two processes at one time."""
    numbers = {one.processes[0].process for one in (capture, trace)}
    clocks = {one.manifest.clock for one in (capture, trace)}
    if None in numbers or len(numbers) == 1 or clocks != {_EPOCH}:
        return False
    (start, end), (other_start, other_end) = (
        (int(times["start_ns"].to_numpy().min()), int(times["end_ns"].to_numpy().max()))
        for times in (capture.kernels, trace.kernels)
    )
    return start < other_end and other_start < end
