"""Which collectives of several ranks are the same, and how long each waits for the others."""

from dataclasses import replace

import polars as pl
import pytest
from capture_builder import CaptureBuilder
from made_up_ranks import MadeUpRank, Work, summaries
from parallel_ranks import RankTimeline

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.captures import joined
from gpuprof.collectors.joining.ranks import with_distinct_ranks
from gpuprof.roofline.ranks.instances import instances, waits_of
from gpuprof.roofline.ranks.summarise import summarise

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def ranks_of(
    *times: list[tuple[int, int]], step_ends: tuple[int, ...] = (), **more: object
) -> Capture:
    """One rank for each list of (start, end) of its all-reduces of 1 MB."""
    captures = []
    for spans in times:
        build = CaptureBuilder()
        for begin, end in zip((0, *step_ends), step_ends, strict=False):
            build.step("profiled", begin, end)
        for start, end in spans:
            known = {"collective": "allreduce", "message_bytes": 10**6, "group": "0"}
            known |= {"group_size": len(times), **more}
            build.kernel(start, start, end, ALL_REDUCE, kind="collective", **known)
        captures.append(build.build(world_size=len(times)))
    return joined(with_distinct_ranks(captures)[0])


def waits(capture: Capture, rank: int) -> dict[int, int]:
    """What each collective of `rank` waited, by when it began."""
    found = waits_of(instances([summarise(capture, each) for each in capture.manifest.ranks]), rank)
    starts = capture.rank(rank).kernels["start_ns"][found["kernel_row"]]
    return dict(zip(starts, found["rank_wait_ns"], strict=True))


def test_collectives_are_the_same_by_their_order_in_the_step() -> None:
    capture = ranks_of(
        [(0, 100), (200, 230), (1000, 1010)],
        [(60, 100), (210, 230), (1002, 1010)],
        step_ends=(500, 2000),
    )
    assert waits(capture, 0) == {0: 60, 200: 10, 1000: 2}
    assert waits(capture, 1) == {60: 0, 210: 0, 1002: 0}


def test_a_step_of_unequal_counts_tells_nothing() -> None:
    """One rank's record of the first step begins late."""
    capture = ranks_of(
        [(0, 100), (200, 230), (1000, 1010)], [(210, 230), (1002, 1010)], step_ends=(500, 2000)
    )
    assert waits(capture, 0) == {1000: 2}


def test_sequence_numbers_tell_where_they_are_known() -> None:
    captures = []
    for spans in ([(0, 100, 7), (200, 230, 8)], [(210, 230, 8)]):
        build = CaptureBuilder()
        for start, end, number in spans:
            known = {"collective": "allreduce", "message_bytes": 10**6, "group": "0"}
            known |= {"group_size": 2, "sequence": number}
            build.kernel(start, start, end, ALL_REDUCE, kind="collective", **known)
        captures.append(build.build(world_size=2))
    assert waits(joined(with_distinct_ranks(captures)[0]), 0) == {200: 10}


def test_ranks_that_are_missing_tell_nothing() -> None:
    assert waits(ranks_of([(0, 100)], [(60, 100)], group_size=3), 0) == {}


@pytest.mark.parametrize("collective", ["broadcast", "send", "all_to_allv", "reduce"])
def test_ranks_that_do_different_things_tell_nothing(collective: str) -> None:
    assert waits(ranks_of([(0, 100)], [(60, 100)], collective=collective), 0) == {}


def test_collectives_of_no_named_group_among_many_ranks_are_left_out() -> None:
    made = []
    for rank in range(3):
        timeline = RankTimeline(rank, 3)
        timeline.communicate(0, "allreduce", 100, 200)
        timeline.compute(0, "forward", 0, 100)
        own = timeline.summary()
        unnamed = own.collectives.with_columns(
            pl.lit(None, pl.String).alias("group"),
            pl.lit(7, pl.Int64).alias("kernel_row"),
            pl.lit("broadcast").alias("collective"),
        )
        made.append(replace(own, collectives=pl.concat([own.collectives, unnamed])))
    assert instances(made)["collective"].to_list() == ["allreduce"] * 3
    alone = [replace(each, collectives=each.collectives[1:]) for each in made]
    assert instances(alone).is_empty()


def test_a_rank_that_does_not_name_the_members_of_a_group_is_in_the_one_that_others_name() -> None:
    steps = [[Work(1_000_000)]] * 2
    named = summaries(MadeUpRank(steps), MadeUpRank(steps), named=True)
    unnamed = summaries(MadeUpRank(steps), MadeUpRank(steps))
    assert instances([named[0], unnamed[1]])["instance"].n_unique() == 2


def test_collectives_without_a_group_are_of_the_only_two_ranks() -> None:
    """As in recordings of Nsight Systems, which name no groups."""
    unknown = {"group": None, "group_size": None, "message_bytes": None}
    spans = [(0, 100), (200, 230)], [(60, 100), (210, 230)]
    assert waits(ranks_of(*spans, **unknown), 0) == {0: 60, 200: 10}
    assert waits(ranks_of(*spans, spans[0], **unknown), 0) == {}
