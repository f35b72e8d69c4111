"""Other ranks beside the analysed one, at the same time by a common clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median_low
from typing import Final

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.rank_figures import ClockAlignment, RankFigures, RanksAnalysis
from gpuprof.roofline.ranks.clocks import on_common_clock
from gpuprof.roofline.ranks.instances import waits_of
from gpuprof.roofline.timeline.device import Lanes, in_order
from gpuprof.roofline.timeline.events import as_events, in_rows
from gpuprof.roofline.timeline.window import Window
from gpuprof.roofline.timeline_figures import RankRole, TimelineLane, TimelineRank

# Of as many ranks all are shown, of more those that matter.
_FEW: Final = 4
# Of each, those with most work first.
_MOST_STREAMS: Final = 3
_MOST_ROWS: Final = 2
_STREAM: Final = ("device", "context", "stream")


@dataclass(frozen=True)
class JobRanks:
    """What is known of all ranks of the job of an analysed one."""

    # The attributed capture, with the tables of those ranks that it holds.
    capture: Capture
    # `gpuprof.roofline.ranks.instances` of all ranks, and what they say together.
    matched: pl.DataFrame
    figures: RanksAnalysis | None

    @property
    def clocks(self) -> ClockAlignment | None:
        """How their clocks stand."""
        return None if self.figures is None else self.figures.clocks

    def shown_beside(self, rank: int) -> tuple[TimelineRank, ...]:
        """The ranks that matter to `rank`, with a common clock, in order of their numbers."""
        if self.figures is None or self.clocks is None:
            return ()
        aligned = {clock.rank for clock in self.clocks.clocks}
        if rank not in aligned:
            return ()
        others = [each for each in self.figures.ranks if each.rank in aligned - {rank}]
        roles = _roles(others, [each.rank for each in self.figures.stragglers])
        held = {info.rank for info in self.capture.processes}
        few = len(self.figures.ranks) <= _FEW
        return tuple(
            TimelineRank(
                rank=each.rank,
                role=roles.get(each.rank, ""),
                collectives_only=each.rank not in held,
            )
            for each in others
            if few or each.rank in roles
        )

    def lanes(self, shown: TimelineRank, own_rank: int, window: Window) -> Lanes:
        """The streams of another rank in the window of `own_rank`, in times of that one's clock."""
        assert self.clocks is not None
        if shown.collectives_only:
            table = self.matched.filter(pl.col("rank") == shown.rank).with_columns(
                kind=pl.lit("collective")
            )
        else:
            table = self.capture.kernels.filter(pl.col("rank") == shown.rank).with_columns(
                kernel_row=pl.int_range(pl.len(), dtype=pl.Int64)
            )
        edges = pl.DataFrame(
            {"rank": [own_rank], "start_ns": [window.step_ns], "end_ns": [window.step_ns]},
            schema={"rank": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64},
        )
        later = window.step_ns - int(on_common_clock(edges, self.clocks)["start_ns"][0])
        times = ("start_ns", "end_ns")
        events = window.of(
            on_common_clock(table, self.clocks).with_columns(pl.col(times) + later)
        ).join(
            waits_of(self.matched, shown.rank), on="kernel_row", how="left", maintain_order="left"
        )
        streams = [name for name in _STREAM if name in events.columns]
        busiest = sorted(
            events.partition_by(streams, as_dict=True).items(),
            key=lambda item: -int((item[1]["end_ns"] - item[1]["start_ns"]).sum()),
        )[:_MOST_STREAMS]
        lanes: Lanes = []
        for values, own in sorted(busiest, key=lambda item: in_order(item[0])):
            place = dict(zip(streams, values, strict=True))
            for row, found in in_rows(as_events(own), _MOST_ROWS).items():
                lane = TimelineLane(kind="stream", rank=shown.rank, row=row, **place)
                lanes.append((lane, found))
        return lanes


def _roles(others: Sequence[RankFigures], stragglers: Sequence[int]) -> dict[int, RankRole]:
    """Who makes the others wait, who waits most, and who is in the middle."""
    own = {each.rank: fmean(step.own_ns for step in each.steps) for each in others if each.steps}
    waits = {
        each.rank: fmean(step.wait_ns or 0 for step in each.steps) for each in others if each.steps
    }
    if not own:
        return {}
    usual = median_low(own.values())
    roles: dict[int, RankRole] = {next(rank for rank in own if own[rank] == usual): "median"}
    if any(waits.values()):
        roles[max(waits, key=waits.__getitem__)] = "waits most"
    late = [rank for rank in stragglers if rank in own]
    roles[late[0] if late else max(own, key=own.__getitem__)] = "straggler" if late else "slowest"
    return roles
