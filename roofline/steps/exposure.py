"""Communication and copies that no computing hides."""

import polars as pl

from gpuprof.roofline.analysis import Exposed
from gpuprof.roofline.intervals import union_ns
from gpuprof.roofline.work.work import Work

_COPIES = ("memcpy", "memset")


def exposed(work: Work) -> Exposed | None:
    """What of one profiled step's busy time is computing, and what computing does not hide.

    None where no device work was recorded.
    """
    kernels = work.kernels
    if kernels.is_empty():
        return None
    without_collectives = kernels.filter(pl.col("kind") != "collective")
    computing = without_collectives.filter(~pl.col("kind").is_in(_COPIES))
    busy_ns, local_ns, computing_ns = (
        union_ns(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())
        for frame in (kernels, without_collectives, computing)
    )
    return Exposed(
        computing_ns=round(computing_ns / work.steps),
        communication_ns=round((busy_ns - local_ns) / work.steps),
        copies_ns=round((local_ns - computing_ns) / work.steps),
    )
