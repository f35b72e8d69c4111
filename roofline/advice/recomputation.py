"""What activation checkpointing computes a second time."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from gpuprof.roofline.advice.candidate import Candidate, Gain
from gpuprof.roofline.durations import duration
from gpuprof.roofline.work.work import Work

# What keeps the activations instead costs: they are written and read again.
_KEEPING: Final = 0.9


def recomputation(work: Work) -> Iterator[Candidate]:
    """One candidate where device work of the profiled steps was done a second time."""
    again = work.kernels.filter(pl.col("recompute").fill_null(value=False))
    if again.is_empty():
        return
    again_ns = int(again["duration_ns"].sum())
    share = again_ns / int(work.kernels["duration_ns"].sum())
    gain_ns = again_ns // work.steps
    yield Candidate(
        finding="recomputation",
        what="checkpointed modules",
        gain=Gain(gain_ns, round(gain_ns * _KEEPING), gain_ns),
        evidence=(
            f"{duration(gain_ns)} of device work a step ({share:.0%}) repeats the forward pass"
        ),
    )
