"""Where a rank's events stand in a Chrome trace: process numbers, ids and times.

A trace of one rank has the numbers that were recorded. In one of several these may be another
rank's too, so each rank has its own, in the order of ranks, and all times are on one clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.reports.chrome.rows import device_offset
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.rank_figures import RankClock

# The first number of a rank's devices, and what is between those of two ranks.
_DEVICES: Final = 1_000_000
_APART: Final = 1_000
# Between the correlation ids of two ranks: they are 32-bit numbers.
_IDS_APART: Final = 1 << 32


@dataclass(frozen=True)
class RankPlaces:
    """The numbers of one rank of a trace."""

    # "rank 3, ", "" where there is one rank.
    prefix: str = ""
    # By the process number that was recorded; others stand as they are.
    processes: Mapping[int, int] = field(default_factory=dict)
    # What to add to a device's index for its process number.
    devices_from: int = 0
    # What to add to an id that counts within the rank.
    ids_from: int = 0
    clock: RankClock | None = None

    def process(self, number: int) -> int:
        """The number of a host's process."""
        return self.processes.get(number, number)

    def time_ns(self, own_ns: int) -> int:
        """A time of the rank on the clock of the trace."""
        if self.clock is None:
            return own_ns
        since = own_ns - self.clock.middle_ns
        return own_ns - self.clock.offset_ns - round(self.clock.drift * since / 1e9)


@dataclass(frozen=True)
class HostProcesses:
    """The processes of one rank: the one that it is, and all that events are of, ascending."""

    own: int
    every: pl.Series


def host_processes(capture: Capture) -> HostProcesses:
    """Those of a one-rank capture; without any that was recorded its own is 0."""
    (info,) = capture.processes
    found = pl.concat(
        [capture.table(name)["process"] for name in ("ops", "launches", "ranges")]
    ).drop_nulls()
    most = found.mode().min()
    own = info.process if info.process is not None else most if isinstance(most, int) else 0
    return HostProcesses(own, found.unique().append(pl.Series([own])).unique().sort())


def places_of_ranks(captures: Sequence[Capture], analysis: Analysis) -> list[RankPlaces]:
    """The places of each of these one-rank captures, of one of which is `analysis`.

    Times of ranks whose clocks could not be aligned stay as they are.
    """
    if len(captures) == 1:
        (capture,) = captures
        devices = devices_of(capture).cast(pl.Int64)
        offset = device_offset(host_processes(capture).every, devices)
        return [RankPlaces(devices_from=offset)]
    known = None if analysis.ranks is None else analysis.ranks.clocks
    clocks = {clock.rank: clock for clock in (known.clocks if known else ())}
    places = []
    number = 1
    for position, capture in enumerate(captures):
        processes = host_processes(capture).every
        rank = capture.processes[0].rank
        places.append(
            RankPlaces(
                prefix=f"rank {rank}, ",
                processes=dict(zip(processes, count(number))),
                devices_from=_DEVICES + _APART * position,
                ids_from=_IDS_APART * position,
                clock=clocks.get(rank),
            )
        )
        number += len(processes)
    return places


def devices_of(capture: Capture) -> pl.Series:
    """The numbers of the devices of a one-rank capture, ascending."""
    columns = [capture.kernels["device"], capture.samples["device"]]
    numbers: pl.Series = pl.concat([column.fill_null(0) for column in columns]).unique().sort()
    return numbers
