"""Which ranks make the others wait, by how much, and in which of their steps.

A rank is late by what it needs for a step by itself beyond what the median of the others needs:
device work, and time in which its host keeps the device from work. As far as the others wait for it
in the collectives that they share, they lose that. What the host is late with launches is apart,
since the profiler lengthens it: a rank that comes last to every collective for that reason alone
may come first without the profiler.

Ranks and steps always differ a little. A straggler differs by more than five standard deviations of
both, and by more than the 1 % within which profiled device work repeats: in all that it needs, or
in one channel of that (`gpuprof.roofline.ranks.channels`). So does one that has much in every step
of what no other has: by how much may change then, as with a host that is ahead in some steps.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuprof.roofline.rank_figures import LateLaunches, LatePattern
from gpuprof.roofline.ranks.channels import MORE_WORK, OWN
from gpuprof.roofline.ranks.own_times import waits_of_steps

# Standard deviations.
_BEYOND_NOISE: Final = 5
# Of the step.
REPEATS_WITHIN: Final = 0.01
# Between a standard deviation of a normal distribution and its median distance from the median, or
# the lower quartile of the distances between two of its values.
_MEDIAN_DISTANCE: Final = 1.4826
_QUARTER_OF_DIFFERENCES: Final = 2.2191
# By what the former falls short of few values: Croux and Rousseeuw 1992, "Time-efficient algorithms
# for two highly robust estimators of scale", section 4.
_FEW: Final = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107}
# The standard error of a median against that of a mean.
_OF_A_MEDIAN: Final = 1.2533
_STEPS_THAT_TELL: Final = 3
_RANKS_THAT_TELL: Final = 4
# Of what a rank has in every step, and no other has: of the step at least, and the others of it at
# most.
_MUCH: Final = 0.05
_NEXT_TO_NOTHING: Final = 0.2
# Of the steps: late in so many is late in all.
_NEARLY_ALL: Final = 0.75
_IN_MANY: Final = 0.5
# Of a rank that is late in some steps: fewer are chance.
_FEWEST_LATE: Final = 3
# Of what ranks vary by in all: less than that, in one step or the median step, may be any pause.
_HICCUP: Final = 2

_Table = NDArray[np.float64]
_Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class LateRank:
    """One rank that is late in some steps of its group."""

    rank: int
    # All ranks of the group.
    group: tuple[int, ...]
    pattern: LatePattern
    # Of a periodic one: late in every so many steps.
    every: int | None
    # All steps of the group, and by how much it made the others wait in each; 0 where it is not
    # late.
    steps: tuple[int, ...]
    late_ns: tuple[int, ...]
    # In the mean of all steps, by how much it is later than the second latest.
    beyond_next_ns: int

    @property
    def late_steps(self) -> tuple[int, ...]:
        """Those in which it is late."""
        return tuple(step for step, ns in zip(self.steps, self.late_ns, strict=True) if ns)

    @property
    def per_step_ns(self) -> int:
        """What it costs in the mean of all steps."""
        return round(sum(self.late_ns) / len(self.late_ns))


def late_ranks(
    times: pl.DataFrame, by_channel: pl.DataFrame, found: pl.DataFrame
) -> tuple[LateRank, ...]:
    """The stragglers by what they cost, most first.

    `times` are `gpuprof.roofline.ranks.own_times`, `by_channel` the same in channels, `found` the
    instances, which tell the groups.
    """
    late: dict[int, LateRank] = {}
    for group in _groups(times, found):
        floor_ns = REPEATS_WITHIN * group.length_ns
        in_all = by_channel.filter(pl.col("channel") == OWN)
        varies_ns, _ = _noise_ns(_beyond_others(_table(in_all, group)))
        large = by_channel.filter(pl.col("nanoseconds") > floor_ns)["channel"].unique().sort()
        for channel in large:
            if channel != MORE_WORK and not group.tells_noise:
                continue
            needs = _table(by_channel.filter(pl.col("channel") == channel), group)
            for each in _late_in(group, needs, varies_ns):
                known = late.get(each.rank)
                if known is None or known.per_step_ns < each.per_step_ns:
                    late[each.rank] = each
    return tuple(sorted(late.values(), key=lambda each: (-each.per_step_ns, each.rank)))


def tells_stragglers(times: pl.DataFrame, found: pl.DataFrame) -> bool:
    """Whether there are steps or ranks enough in any group to say that nobody is late."""
    return any(group.tells_noise for group in _groups(times, found))


def late_launches(times: pl.DataFrame, found: pl.DataFrame) -> tuple[LateLaunches, ...]:
    """Ranks that the others wait for since their hosts launch late under the profiler."""
    late: dict[int, LateLaunches] = {}
    launching = times.select("rank", "step", nanoseconds="launch_ns")
    for group in _groups(times, found):
        if not group.tells_noise:
            continue
        for each in _late_in(group, _table(launching, group)):
            known = late.get(each.rank)
            if known is None or known.late_ns < each.per_step_ns:
                late[each.rank] = LateLaunches(rank=each.rank, late_ns=each.per_step_ns)
    return tuple(sorted(late.values(), key=lambda each: (-each.late_ns, each.rank)))


@dataclass(frozen=True)
class _Group:
    """Ranks that share collectives, in the steps that all of them have."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    # One row a rank and one column a step, in ns: what the median of the others waits longer in the
    # collectives of the group.
    waited_for_ns: _Table
    length_ns: float

    @property
    def tells_noise(self) -> bool:
        """Whether there are steps or ranks enough to see how much they vary."""
        return len(self.steps) >= _STEPS_THAT_TELL or len(self.ranks) >= _RANKS_THAT_TELL


def _groups(times: pl.DataFrame, found: pl.DataFrame) -> Iterator[_Group]:
    """Each set of ranks that share collectives in which all do the same."""
    shared = found.filter("alike")
    members = (
        shared.group_by("instance")
        .agg(ranks=pl.col("rank").sort())
        .group_by("ranks")
        .agg("instance")
        .sort("ranks")
    )
    for ranks, numbers in members.iter_rows():
        waits = waits_of_steps(shared.filter(pl.col("instance").is_in(numbers)))
        own = times.drop("wait_ns").join(waits, on=("rank", "step"), how="inner")
        everywhere = own.group_by("step").len().filter(pl.col("len") == len(ranks))["step"]
        steps = tuple(everywhere.sort())
        if len(ranks) < 2 or not steps:
            continue
        lengths_ns = own.filter(pl.col("step").is_in(everywhere.implode()))["length_ns"]
        group = _Group(tuple(ranks), steps, np.empty(0), float(np.median(lengths_ns.to_numpy())))
        waited = _table(waits.rename({"wait_ns": "nanoseconds"}), group)
        yield replace(group, waited_for_ns=np.maximum(-_beyond_others(waited), 0))


def _table(rows: pl.DataFrame, group: _Group) -> _Table:
    """The nanoseconds of `rows` by rank and step, 0 where there is no row."""
    everyone = pl.DataFrame({"rank": group.ranks}, schema={"rank": pl.Int32}).join(
        pl.DataFrame({"step": group.steps}, schema={"step": pl.Int32}), how="cross"
    )
    filled = everyone.join(rows, on=("rank", "step"), how="left", maintain_order="left")
    values = filled["nanoseconds"].fill_null(0).to_numpy().astype(np.float64)
    return values.reshape(len(group.ranks), len(group.steps))


def _late_in(group: _Group, needs: _Table, varies_ns: float = 0.0) -> list[LateRank]:
    """The late ranks of `group` by what they need, in all of which ranks vary by `varies_ns`."""
    beyond = _beyond_others(needs)
    cost = np.minimum(beyond, group.waited_for_ns)
    floor_ns = REPEATS_WITHIN * group.length_ns
    over_steps, over_ranks = _noise_ns(beyond)
    # A busy host has pauses of any kind that nothing else of their kind varies like.
    least_ns = max(floor_ns, _HICCUP * varies_ns)
    of_step = np.maximum(_BEYOND_NOISE * np.hypot(over_steps, over_ranks), least_ns)
    error = _OF_A_MEDIAN / math.sqrt(len(group.steps))
    of_median = np.maximum(
        _BEYOND_NOISE * np.hypot(error * over_steps, over_ranks), _HICCUP * error * varies_ns
    )
    # Late as a rule where the median step is, though others may be later still in some of its
    # steps; else in those steps that stand out by themselves.
    steady = (
        (np.median(beyond, axis=1) > of_median)
        & ((beyond > floor_ns).mean(axis=1) >= _NEARLY_ALL)
        & ((cost > floor_ns).mean(axis=1) >= _IN_MANY)
    ) | (_alone_in_every_step(group, needs) & (cost > floor_ns).all(axis=1))
    late = np.where(steady[:, None], cost > floor_ns, cost > of_step[:, None])
    # A few times is chance, unless it is another rank's turn in the other steps.
    some_late = late.any(axis=0)
    turns = some_late.sum() >= _STEPS_THAT_TELL and some_late.mean() >= _NEARLY_ALL
    enough = late.any(axis=1) if turns else late.sum(axis=1) >= _FEWEST_LATE
    found = []
    for row in np.flatnonzero(enough | (steady & late.any(axis=1))):
        others_late: _Marks = late.sum(axis=0) > late[row]
        pattern, every = ("persistent", None) if steady[row] else _pattern(late[row], others_late)
        next_ns = np.delete(beyond, row, axis=0).max(axis=0)
        margin = np.where(late[row], np.maximum(np.minimum(cost[row], beyond[row] - next_ns), 0), 0)
        found.append(
            LateRank(
                group.ranks[row],
                group.ranks,
                pattern,
                every,
                group.steps,
                tuple(np.where(late[row], np.round(cost[row]), 0).astype(int).tolist()),
                round(float(margin.mean())),
            )
        )
    return found


def _alone_in_every_step(group: _Group, needs: _Table) -> _Marks:
    """Which ranks have much in every step of what the others have next to nothing of."""
    if len(group.steps) < _STEPS_THAT_TELL:
        return np.zeros(len(group.ranks), np.bool_)
    least = needs.min(axis=1)
    most = needs.max(axis=1)
    of_others = np.array([np.delete(most, row).max() for row in range(len(most))])
    alone: _Marks = (least > _MUCH * group.length_ns) & (of_others < _NEXT_TO_NOTHING * least)
    return alone


def _pattern(late: _Marks, others: _Marks) -> tuple[LatePattern, int | None]:
    """Of one rank's late steps, and of those in which any other rank is late."""
    at = np.flatnonzero(late)
    if len(at) >= _NEARLY_ALL * len(late):
        return "persistent", None
    if others[~late].mean() >= _IN_MANY:
        return "moving", None
    between = set(np.diff(at).tolist())
    if len(at) >= _FEWEST_LATE and len(between) == 1:
        return "periodic", between.pop()
    return "some steps", None


def _noise_ns(beyond: _Table) -> tuple[float, _Table]:
    """How much ranks vary over the steps, and for each how much the others differ, as deviations.

    Of a single other rank nothing tells how it would differ from more.
    """
    usual = np.median(beyond, axis=1)
    over_ranks = np.zeros(len(usual))
    for row in range(len(usual)):
        others = np.delete(usual, row)
        distance = np.median(np.abs(others - np.median(others)))
        over_ranks[row] = _MEDIAN_DISTANCE * _of_few(len(others)) * distance
    return _deviation_over_steps(beyond), over_ranks


def _deviation_over_steps(beyond: _Table) -> float:
    """The standard deviation of one rank's steps, from the smallest quarter of their differences.

    Rousseeuw and Croux 1993 (Qn), of all ranks' pairs of steps: up to half of the steps, where
    they are apart, do not change it, as those in which a rank is late. Distances from each rank's
    own median would: of three steps one has none.
    """
    first, second = np.triu_indices(beyond.shape[1], 1)
    if not len(first):
        return 0.0
    differences = np.abs(beyond[:, first] - beyond[:, second])
    return float(_QUARTER_OF_DIFFERENCES * np.quantile(differences, 0.25, method="lower"))


def _of_few(count: int) -> float:
    """By what the median distance of `count` values from their median falls short."""
    return _FEW.get(count, count / (count - 0.8)) if count > 1 else 0.0


def _beyond_others(values: _Table) -> _Table:
    """Each value minus the median of the other ranks' in its step."""
    ordered = np.sort(values, axis=0)
    place = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable")
    count = len(values) - 1
    low, high = (count - 1) // 2, count // 2
    columns = np.arange(values.shape[1])
    # Without the value itself, what stands behind it moves up by one.
    medians = [ordered[np.where(place <= at, at + 1, at), columns] for at in (low, high)]
    return values - (medians[0] + medians[1]) / 2
