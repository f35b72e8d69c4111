"""Ranks of a made-up job, as their summaries: who computes for how long, and who waits for whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from gpuprof.roofline.ranks import summary
from gpuprof.roofline.ranks.summary import RankProcess, RankSummary

TRANSFER_NS = 200_000
TYPES = '["float", "float"]'


@dataclass(frozen=True)
class Work:
    """Calls of one operator in one step."""

    nanoseconds: int
    name: str = "aten::mm"
    dims: str = "[[64, 64], [64, 64]]"
    calls: int = 1
    phase: str = "forward"
    line: int | None = None


@dataclass(frozen=True)
class Idle:
    """Time of one step in which the device has no work."""

    nanoseconds: int
    culprit: str = "time.sleep"
    kind: str = "host work"
    place: str = "train.py:7"
    keeps: bool = True


@dataclass(frozen=True)
class MadeUpRank:
    """What one rank does in each step before the collective at its end."""

    steps: Sequence[Sequence[Work | Idle]]
    # Its clock shows common time times (1 + drift) + offset.
    offset_ns: int = 0
    drift: float = 0.0
    # What the end of each collective is later here.
    late_ends_ns: Sequence[int] = ()
    # The group of the collective, by name, and its members; None: all ranks.
    group: str = "0"
    members: Sequence[int] | None = None
    sm_clock_mhz: int | None = None
    # Its numbers of steps begin here.
    first_step: int = 0
    timed_ns: int | None = None
    timed_loader_ns: int | None = None
    process: Mapping[str, object] = field(default_factory=dict)

    def shown(self, common_ns: int) -> int:
        """What its clock shows then."""
        return common_ns + round(common_ns * self.drift) + self.offset_ns


def summaries(*ranks: MadeUpRank, numbered: bool = True, named: bool = False) -> list[RankSummary]:
    """One summary a rank. `numbered`: with sequence numbers; `named`: with members of groups."""
    everyone = tuple(range(len(ranks)))
    begun = dict.fromkeys(everyone, 1_000_000)
    rows: dict[int, dict[str, list[tuple[object, ...]]]] = {
        rank: {name: [] for name in summary.FRAMES} for rank in everyone
    }
    for number in range(max(len(rank.steps) for rank in ranks)):
        there = [rank for rank in everyone if number < len(ranks[rank].steps)]
        arrived = {}
        for rank in there:
            parts = ranks[rank].steps[number]
            step = ranks[rank].first_step + number
            arrived[rank] = begun[rank] + sum(part.nanoseconds for part in parts)
            frames = rows[rank]
            for part in parts:
                if isinstance(part, Work):
                    call = (part.name, part.dims, TYPES, part.phase, None, "train.py", part.line)
                    frames["work"].append((step, 0, *call, part.calls, part.nanoseconds))
                else:
                    frames["idle"].append(
                        (step, 0, part.kind, part.culprit, part.place, part.keeps, part.nanoseconds)
                    )
        for rank in there:
            one = ranks[rank]
            step = one.first_step + number
            members = tuple(one.members) if one.members is not None else everyone
            ended = max(arrived[other] for other in members if other in arrived) + TRANSFER_NS
            late = one.late_ends_ns[number] if number < len(one.late_ends_ns) else 0
            start, end = one.shown(arrived[rank]), one.shown(ended) + late
            begun_ns = one.shown(begun[rank])
            working = sum(p.nanoseconds for p in one.steps[number] if isinstance(p, Work))
            idle = sum(p.nanoseconds for p in one.steps[number] if isinstance(p, Idle))
            frames = rows[rank]
            length_ns = end - begun_ns
            marks = (step, "profiled", begun_ns, end, None, length_ns, None, None)
            parts_ns = (working, length_ns - working - idle, idle)
            frames["steps"].append((*marks, begun_ns, end, *parts_ns))
            group = (one.group, str(list(members)) if named else None, len(members))
            what = (number if numbered else None, "allreduce", 2**20, "Float", 1, "k", number)
            times = (start - 10, start, end, end - start)
            frames["collectives"].append((step, *group, *what, *times))
            frames["states"].append((step, one.sm_clock_mhz, None, None))
            begun[rank] = ended
    return [_summary(rank, one, rows[rank], len(ranks)) for rank, one in enumerate(ranks)]


def _summary(
    rank: int,
    one: MadeUpRank,
    rows: Mapping[str, list[tuple[object, ...]]],
    world_size: int,
) -> RankSummary:
    frames = {
        name: pl.DataFrame(rows[name], schema=schema, orient="row")
        for name, schema in summary.FRAMES.items()
    }
    if one.timed_ns is not None:
        marks = (100, "timed", 0, one.timed_ns, one.timed_ns, one.timed_ns)
        timed = (*marks, None, one.timed_loader_ns, *(None,) * 5)
        added = pl.DataFrame([timed], schema=summary.STEPS, orient="row")
        frames["steps"] = pl.concat([frames["steps"], added])
    process = RankProcess(rank=rank, **{"world_size": world_size, **one.process})  # type: ignore[arg-type]
    return RankSummary(process, **frames)
