"""What activation checkpointing computes a second time."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from gpuprof.roofline.advice.candidate import Candidate, Gain, line_text
from gpuprof.roofline.durations import duration
from gpuprof.roofline.work.work import Work

# What keeps the activations instead costs: they are written and read again.
_KEEPING: Final = 0.9


def recomputation(work: Work) -> Iterator[Candidate]:
    """A candidate for each module and line whose device work was done a second time."""
    again = work.kernels.filter(pl.col("recompute").fill_null(value=False))
    if again.is_empty():
        return
    again_ns = int(again["duration_ns"].sum())
    share = again_ns / int(work.kernels["duration_ns"].sum())
    evidence = (
        f"{duration(again_ns // work.steps)} of device work {work.per} ({share:.0%}) repeats "
        "the forward pass"
    )
    for number, place_ns in again.group_by("place").agg(pl.col("duration_ns").sum()).iter_rows():
        place = work.places.table[number]
        gain_ns = place_ns // work.steps
        yield Candidate(
            finding="recomputation",
            what="what is computed twice",
            gain=Gain(gain_ns, round(gain_ns * _KEEPING), gain_ns),
            evidence=evidence,
            place=line_text(place.source),
            module=place.module,
        )
