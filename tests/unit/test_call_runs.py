"""Collectives one after another: which of them one message could replace, and what they wait for.

Two ranks do the same in each step: a product of 400 us, then thirty all-reduces whose hosts launch
one every 60 us, rank 1 last each time. Each needs 5 us once both have come.
"""

import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.captures import joined
from gpuprof.collectors.joining.ranks import with_distinct_ranks
from gpuprof.reports.blocks import Facts
from gpuprof.reports.sections.transfers import SECTION
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.call_runs import call_waits_ns, with_call_runs

US = 1_000
CALLS = 30
STEPS = 3
EVERY = 60 * US
FIRST = 400 * US
LENGTH = FIRST + CALLS * EVERY
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
KNOWN = {"collective": "allreduce", "message_bytes": 512, "group": "0", "group_size": 2}


def one_rank(rank: int, between: str, sizes: int) -> Capture:
    """`between` two calls: nothing, or work that waits for the first (a product, or a division), or
    a product that does not."""
    build = CaptureBuilder()
    for index in range(2):
        build.step("timed", index * LENGTH // 2, (index + 1) * LENGTH // 2)
    for index in range(2, 2 + STEPS):
        begin = index * LENGTH
        build.step("profiled", begin, begin + LENGTH)
        build.mm(begin, begin + 20)
        build.kernel(begin + 10, begin + 30, begin + FIRST, "gemm")
        for call in range(CALLS):
            start = begin + FIRST + call * EVERY
            arrived = start + EVERY - 5 * US if rank else start
            if between != "nothing" and call:
                begun = start - 1 * US if between == "beside" else start
                if between == "divides":
                    types = '["float", "Scalar"]'
                    times = (begun - 2 * US, begun - 1 * US)
                    build.op("aten::div_", *times, dims="[[128], []]", types=types)
                else:
                    build.mm(begun - 2 * US, begun - 1 * US)
                build.kernel(begun - 2 * US, begun, start + 20 * US, "gemm")
                arrived = max(arrived, start + 20 * US)
            build.kernel(
                arrived - 2 * US,
                arrived,
                start + EVERY,
                ALL_REDUCE,
                kind="collective",
                stream=20,
                **{**KNOWN, "message_bytes": 512 * (1 + call % sizes)},
            )
    return build.build(world_size=2)


def analysed(between: str, sizes: int = 1, rank: int = 0) -> Analysis:
    captures = [one_rank(each, between, sizes) for each in (0, 1)]
    return analyze(joined(with_distinct_ranks(captures)[0]), rank=rank)


def test_calls_behind_each_other_cost_what_they_wait_and_could_be_one() -> None:
    found = analysed("nothing")
    (transfer,) = found.transfers
    assert transfer.mergeable_calls == STEPS * (CALLS - 1)
    assert transfer.waiting_ns == STEPS * CALLS * 55 * US
    assert transfer.call_waiting_ns == STEPS * (CALLS - 1) * 55 * US
    assert found.split is not None
    # Half as long a step has room for so much waiting, of which the first call's is no price.
    moving, room = CALLS * 5 * US, LENGTH // 2 - FIRST - CALLS * 5 * US
    waited = found.split.nanoseconds("other rank") + found.split.nanoseconds("communication")
    assert waited == pytest.approx(moving + room, rel=0.05)
    assert found.split.nanoseconds("other rank") == pytest.approx(room / CALLS, rel=0.1)
    assert found.bottleneck.kind == "communication"
    first = found.advice[0]
    assert first.finding == "many messages"
    assert "29 of them need nothing of the call before" in first.evidence
    assert "without the profiler" in first.uncertain
    # From what the calls move to all that there is room for.
    least, most = first.gain_range_ns
    assert least < moving < first.gain_ns <= most < LENGTH // 2 - FIRST
    assert not any(each.finding == "waiting for ranks" for each in found.advice)
    (facts,) = SECTION.summary(found)
    assert isinstance(facts, Facts)
    waits = "1.65 ms of it waits for other ranks, 1.59 ms of that in calls that follow each other"
    assert waits in facts.facts[0].note


def test_the_rank_that_launches_last_is_told_of_one_message_and_not_of_launches() -> None:
    found = analysed("nothing", rank=1)
    assert found.bottleneck.kind == "launch"
    assert found.idle is not None
    (launches,) = found.idle.causes
    # In half as long a step there is room for a third of the 55 us before each call; the first call
    # follows none, and neither does the product.
    share = launches.mergeable_ns / launches.nanoseconds
    assert share == pytest.approx((CALLS - 1) * 55 / (CALLS * 55 + 10), rel=0.01)
    first = found.advice[0]
    assert first.finding == "many messages"
    assert "the device has no work for 532 µs a step until they are launched" in first.evidence
    # What the messages move beyond their bytes, and the launches of all but one.
    moving = CALLS * 5 * US
    assert first.gain_ns == pytest.approx(
        (CALLS - 1) / CALLS * moving + launches.mergeable_ns, 0.01
    )
    # What is told of fewer messages is not told once more; of the class it is still the gain.
    assert not any(each.finding == "launches" for each in found.advice)
    assert found.bottleneck.gain_ns == launches.nanoseconds


@pytest.mark.parametrize("between", ["nothing", "divides", "beside", "waits"])
def test_launches_of_calls_that_could_be_one_are_those_that_a_loop_over_the_kernels_finds(
    between: str,
) -> None:
    found = analysed(between, rank=1)
    assert found.idle is not None
    assert all(cause.mergeable_ns == 0 for cause in found.idle.causes if cause.kind != "launch")
    capture = one_rank(1, between, 1)
    begin, before_ns, counted_ns, calls = 2 * LENGTH, 2 * LENGTH, 0, 0
    for start, end, kind in sorted(
        capture.kernels.select("start_ns", "end_ns", "kind").iter_rows()
    ):
        if start >= begin + LENGTH:
            begin, calls = begin + LENGTH, 0
        calls += kind == "collective"
        # The first call of a step follows none; behind a product that waits each needs the last.
        if kind == "collective" and calls > 1 and between != "waits":
            counted_ns += max(0, start - max(before_ns, begin))
        before_ns = max(before_ns, end)
    launches = [cause for cause in found.idle.causes if cause.kind == "launch"]
    shares = [each.mergeable_ns / each.nanoseconds * each.profiled_ns for each in launches]
    assert sum(shares) == pytest.approx(counted_ns / STEPS, rel=0.01, abs=1)


def test_launches_of_calls_that_depend_on_each_other_stay_launches() -> None:
    found = analysed("waits", rank=1)
    assert found.idle is not None
    assert all(cause.mergeable_ns == 0 for cause in found.idle.causes)
    assert "many messages" not in {each.finding for each in found.advice}


def test_messages_of_as_many_sizes_could_be_one_too() -> None:
    found = analysed("nothing", sizes=CALLS)
    assert {each.calls for each in found.transfers} == {STEPS}
    assert found.bottleneck.kind == "communication"
    (first, *_) = found.advice
    assert first.finding == "many messages"
    assert first.gain_ns > CALLS * 5 * US


def test_calls_whose_messages_depend_on_each_other_are_not_to_be_one() -> None:
    """As in tensor parallelism: the product behind each call waits for what that brought."""
    found = analysed("waits")
    (transfer,) = found.transfers
    assert (transfer.mergeable_calls, transfer.call_waiting_ns) == (0, 0)
    assert found.bottleneck.kind == "other rank"
    assert all("of them need nothing" not in each.evidence for each in found.advice)


def test_a_division_between_calls_makes_no_message_depend_on_another() -> None:
    found = analysed("divides")
    (transfer,) = found.transfers
    assert transfer.mergeable_calls == STEPS * (CALLS - 1)
    assert transfer.call_waiting_ns == STEPS * (CALLS - 1) * 35 * US
    assert found.advice[0].finding == "many messages"


def test_calls_beside_products_could_be_fewer_but_their_waiting_is_not_the_calls_own() -> None:
    """As of buckets of gradients: the product behind a call begins while that is under way."""
    (transfer,) = analysed("beside").transfers
    assert (transfer.mergeable_calls, transfer.call_waiting_ns) == (STEPS * (CALLS - 1), 0)


def in_a_row(waits_ns: list[int]) -> pl.DataFrame:
    """Collectives of one step that follow each other directly."""
    number = len(waits_ns)
    return pl.DataFrame(
        {
            "kernel_row": range(number),
            "step": [7] * number,
            "device": [0] * number,
            "what": ["all-reduce"] * number,
            "group": ["0"] * number,
            "transfer": ["communication"] * number,
            "start_ns": range(0, 100 * number, 100),
            "end_ns": range(90, 100 * number, 100),
            "launch_ns": range(number),
            "exposed_wait_ns": waits_ns,
            "elementwise": [None, False] * (number // 2),
        }
    )


@pytest.mark.parametrize(
    ("late_ns", "kept"),
    # As long as the first call waits is no price of the others; what a straggler costs beyond that
    # is in them.
    [(0, 70), (50, 70), (85, 35), (200, 0)],
)
def test_what_a_straggler_costs_is_not_the_price_of_calls(late_ns: int, kept: int) -> None:
    found = with_call_runs(in_a_row([50, *[10] * 7]))
    assert call_waits_ns(found, late_ns).sum() == kept


def test_a_few_calls_may_wait_for_a_pause() -> None:
    found = with_call_runs(in_a_row([50, *[10] * 5]))
    assert call_waits_ns(found, 0).sum() == 0
    assert found["mergeable"].sum() == 5


def test_calls_of_other_kinds_groups_and_steps_are_others() -> None:
    rows = pl.DataFrame(
        {
            "kernel_row": range(6),
            "step": [1, 1, 1, 1, 2, 2],
            "device": [0] * 6,
            "what": ["reduce-scatter", "all-reduce", "reduce-scatter", "all-reduce"]
            + ["all-reduce"] * 2,
            "group": ["0", "1", "0", "1", "1", "2"],
            "transfer": ["communication"] * 6,
            "start_ns": [0, 100, 200, 300, 400, 500],
            "end_ns": [90, 190, 290, 390, 490, 590],
            "launch_ns": range(6),
            "exposed_wait_ns": [10] * 6,
            "elementwise": [False] * 6,
        }
    )
    found = with_call_runs(rows)
    assert not found["mergeable"].any()
    assert call_waits_ns(found, 0).sum() == 0
