"""Clocks that are aligned on the ends of shared collectives, and those that cannot be."""

import numpy as np
import polars as pl
import pytest
from made_up_ranks import MadeUpRank, Work, summaries

from gpuprof.roofline.rank_figures import ClockAlignment
from gpuprof.roofline.ranks.clocks import align, arrival_skews, on_common_clock
from gpuprof.roofline.ranks.instances import instances

HOUR_NS = 3_600 * 10**9
STEPS = 40


def jitter(seed: int, spread_ns: float = 2_000) -> list[int]:
    """How much later than the others a rank ends each collective: some microseconds."""
    return np.random.default_rng(seed).normal(0, spread_ns, STEPS).round().astype(int).tolist()


def work(seed: int, length_ns: int = 10_000_000) -> list[list[Work]]:
    random = np.random.default_rng(seed)
    return [[Work(int(length_ns * (1 + 0.1 * random.random())))] for _ in range(STEPS)]


def aligned(*ranks: MadeUpRank) -> ClockAlignment:
    found = align(instances(summaries(*ranks)))
    assert found is not None
    return found


def test_clocks_that_are_hours_apart() -> None:
    shifts = (0, 3 * HOUR_NS + 17, -5 * HOUR_NS)
    ranks = [
        MadeUpRank(work(rank), offset_ns=shift, late_ends_ns=jitter(rank))
        for rank, shift in enumerate(shifts)
    ]
    found = aligned(*ranks)
    assert (found.reference, found.unaligned, found.reason) == (0, (), "")
    for clock, shift in zip(found.clocks, shifts, strict=True):
        # Of 40 ends that are 2 us off, the median is off by some 0.4 us, and so is the reference.
        assert clock.offset_ns == pytest.approx(shift, abs=2_000)
        assert (clock.drift, clock.ends) == (0, STEPS)
        assert 2_000 < clock.residual_ns < 8_000


def test_a_clock_that_drifts() -> None:
    """By 50 parts in a million: over the 8 s of this run by 0.4 ms."""
    ranks = [
        MadeUpRank(work(0, 200_000_000), late_ends_ns=jitter(0)),
        MadeUpRank(work(1, 200_000_000), offset_ns=HOUR_NS, drift=50e-6, late_ends_ns=jitter(1)),
    ]
    found = aligned(*ranks)
    assert found.clocks[1].drift == pytest.approx(50_000, rel=0.02)
    assert found.residual_ns is not None
    assert found.residual_ns < 8_000
    # All ends are at the same time on the common clock.
    rows = on_common_clock(instances(summaries(*ranks)), found)
    ends = rows.pivot("rank", index="instance", values="end_ns")
    apart = (ends["1"] - ends["0"]).abs()
    assert np.percentile(apart.to_numpy(), 95) < 12_000


def test_groups_that_share_a_rank_have_one_clock() -> None:
    """Ranks 0 and 1 reduce in one group, then 1 and 2 in another."""
    shifts = {0: 0, 1: HOUR_NS, 2: -HOUR_NS}
    parts = []
    for number, members in enumerate(((0, 1), (1, 2))):
        ends = np.arange(1, 9) * 10**9 + number * 5 * 10**8
        for rank in members:
            parts += [
                (number * 100 + at, rank, str(number), end + shifts[rank])
                for at, end in enumerate(ends.tolist())
            ]
    rows = pl.DataFrame(
        parts, schema=["instance", "rank", "group", "end_ns"], orient="row"
    ).with_columns(
        pl.col("rank").cast(pl.Int32),
        group_ranks=pl.lit(None, pl.String),
        group_size=2,
        alike=True,
        transfer_ns=pl.lit(200_000),
    )
    found = align(rows)
    assert found is not None
    assert {clock.rank: clock.offset_ns for clock in found.clocks} == shifts


def test_ranks_that_share_nothing_have_no_common_clock() -> None:
    pairs = ((0, 1), (0, 1), (2, 3), (2, 3))
    made = summaries(
        *(MadeUpRank(work(rank), members=pair) for rank, pair in enumerate(pairs)), named=True
    )
    found = align(instances(made))
    assert found is not None
    assert [clock.rank for clock in found.clocks] == [0, 1]
    assert (found.unaligned, found.reason) == ((2, 3), "they share no collective with the others")


def test_ends_that_disagree_by_more_than_a_collective_takes_are_no_clock() -> None:
    """Its clock is set again and again."""
    found = aligned(
        MadeUpRank(work(0), late_ends_ns=jitter(0)),
        MadeUpRank(work(1), late_ends_ns=jitter(1)),
        MadeUpRank(work(2), late_ends_ns=jitter(2)),
        MadeUpRank(work(3), late_ends_ns=[abs(ns) for ns in jitter(3, 5_000_000)]),
    )
    assert [clock.rank for clock in found.clocks] == [0, 1, 2]
    assert found.unaligned == (3,)
    assert "further apart" in found.reason


def test_two_ranks_whose_ends_disagree_have_no_clock() -> None:
    found = aligned(
        MadeUpRank(work(0)),
        MadeUpRank(work(1), late_ends_ns=[abs(ns) for ns in jitter(3, 5_000_000)]),
    )
    assert (found.clocks, found.residual_ns) == ((), None)
    assert "further apart" in found.reason


def test_without_shared_collectives_there_is_no_alignment() -> None:
    assert align(instances(summaries(MadeUpRank(work(0)), MadeUpRank(work(1)))[:1])) is None


def test_arrivals_are_compared_on_the_common_clock_alone() -> None:
    """Rank 1 comes 1 ms later than the others, and its clock is hours off."""
    steps = [[Work(10_000_000)]] * STEPS
    late = MadeUpRank([[Work(11_000_000)]] * STEPS, offset_ns=-HOUR_NS, late_ends_ns=jitter(1))
    rows = instances(summaries(MadeUpRank(steps), late, MadeUpRank(steps)))
    found = align(rows)
    assert found is not None
    skews = arrival_skews(rows, found)
    assert skews[1] == pytest.approx(1_000_000, abs=3_000)
    assert abs(skews[0]) < 3_000
    assert arrival_skews(rows, ClockAlignment(reason="none")) == {}
