"""The profiled steps of one rank as its device went through them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.steps.stretch import Stretch


def device_steps(capture: Capture, kernels: pl.DataFrame, *, on_cpu: bool) -> Stretch | None:
    """The profiled steps of an attributed one-rank capture; None where it has none with work.

    `kernels` is the device work of these steps. On a device a step lasts from the end of the work
    of the step before it to the end of its own, which needs no clock that other ranks share; on a
    CPU from mark to mark. All that was recorded is one step, 0, where nothing marks steps.
    """
    if kernels.is_empty():
        return None
    marks = capture.steps.filter(pl.col("phase") == "profiled").sort("start_ns")
    if marks.is_empty():
        if (capture.steps["phase"] == "timed").any():
            return None
        whole = _periods([_first_ns(kernels), _last_ns(kernels)], (0,))
        return replace(whole, definition="whole trace")
    if on_cpu:
        spans = tuple(marks.select("start_ns", "end_ns").iter_rows())
        lengths = tuple(end - start for start, end in spans)
        return Stretch("host range", lengths, tuple(marks["index"]), spans_ns=spans)
    done = kernels.group_by("step").agg(pl.col("end_ns").max()).sort("step")
    first = kernels.filter(pl.col("step") == done["step"][0])
    marked_ns = int(marks.filter(pl.col("index") == done["step"][0])["start_ns"][0])
    begun_ns = _begun_ns(capture, first, marked_ns)
    ends = np.maximum.accumulate(done["end_ns"].to_numpy()).tolist()
    return _periods([begun_ns, *ends], tuple(done["step"]))


def _begun_ns(capture: Capture, first: pl.DataFrame, marked_ns: int) -> int:
    """When the device had done what was before the first step, or its host marked that."""
    first_ns = _first_ns(first)
    earlier = capture.kernels.filter(pl.col("step").is_null() & (pl.col("start_ns") < first_ns))
    reached_ns = int(earlier["end_ns"].to_numpy().max(initial=marked_ns))
    return min(first_ns, reached_ns)


def _periods(times_ns: list[int], indices: tuple[int, ...]) -> Stretch:
    spans = tuple(pairwise(times_ns))
    lengths = tuple(end - start for start, end in spans)
    window_ns = times_ns[0], times_ns[-1]
    return Stretch("device period", lengths, indices, window_ns=window_ns, spans_ns=spans)


def _first_ns(kernels: pl.DataFrame) -> int:
    return int(kernels["start_ns"].to_numpy().min())


def _last_ns(kernels: pl.DataFrame) -> int:
    return int(kernels["end_ns"].to_numpy().max())
