"""Four recorded ranks: a planted straggler, and none; against the raw traces, read with json alone.

In both recordings one rank comes last to nearly every collective since its host launches late under
the profiler. That is not what was planted.
"""

import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpuprof.collectors import kineto
from gpuprof.collectors.joining.captures import joined
from gpuprof.roofline.rank_figures import RanksAnalysis
from gpuprof.roofline.ranks.instances import instances
from gpuprof.roofline.ranks.join import join
from gpuprof.roofline.ranks.summarise import summarise
from gpuprof.roofline.ranks.summary import RankSummary

RECORDINGS = Path(__file__).parents[3] / "shared" / "data" / "recordings"
RANKS = range(4)
EXTRA = [[4096, 4096], [4096, 4096]]

pytestmark = pytest.mark.skipif(
    not RECORDINGS.is_dir(), reason="the recordings are not beside this repository"
)


def path_of(name: str, rank: int) -> Path:
    return RECORDINGS / f"h200x4_{name}_rank{rank}.json.gz"


@cache
def summaries_of(name: str) -> list[RankSummary]:
    capture = joined([kineto.read(path_of(name, rank)) for rank in RANKS])
    return [summarise(capture, rank) for rank in RANKS]


def ranks_of(name: str) -> RanksAnalysis:
    made = summaries_of(name)
    found = join(made, instances(made))
    assert found is not None
    return found


def nanoseconds(event: dict[str, Any], field: str) -> int:
    return round(event[field] * 1000)


@cache
def raw_rank(name: str, rank: int) -> tuple[dict[int, list[int]], dict[int, int]]:
    """By step number: how long its collectives took, in order; the time of the extra products."""
    with gzip.open(path_of(name, rank)) as file:
        events = json.load(file)["traceEvents"]
    steps, launches, products = [], {}, set()
    for event in events:
        args = event.get("args", {})
        begun_ns = nanoseconds(event, "ts") if event.get("ph") == "X" else 0
        if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#"):
            number = int(event["name"].partition("#")[2])
            steps.append((begun_ns, begun_ns + nanoseconds(event, "dur"), number))
        elif event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in args:
            launches[args["correlation"]] = begun_ns
        elif event.get("name") == "aten::mm" and args.get("Input Dims") == EXTRA:
            products.add(args["External id"])
    lasted: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    extra: defaultdict[int, int] = defaultdict(int)
    for event in events:
        if event.get("cat") not in ("kernel", "gpu_memset", "gpu_memcpy"):
            continue
        launched_ns = launches.get(event["args"]["correlation"], 0)
        for start_ns, end_ns, number in steps:
            if start_ns <= launched_ns < end_ns:
                took_ns = nanoseconds(event, "dur")
                if "nccl" in event["name"]:
                    lasted[number].append((nanoseconds(event, "ts"), took_ns))
                elif event["args"]["External id"] in products:
                    extra[number] += took_ns
    return {number: [ns for _, ns in sorted(all_)] for number, all_ in lasted.items()}, extra


def test_waits_are_those_of_the_raw_traces_to_the_nanosecond() -> None:
    made = summaries_of("straggler")
    found = instances(made).sort("start_ns")
    raw = [raw_rank("straggler", rank)[0] for rank in RANKS]
    for number in raw[0]:
        shortest = [min(each) for each in zip(*(of_rank[number] for of_rank in raw), strict=True)]
        for rank in RANKS:
            own = found.filter(pl.col("rank") == rank, pl.col("step") == number)
            assert own["wait_ns"].to_list() == [
                ns - least for ns, least in zip(raw[rank][number], shortest, strict=True)
            ]


def test_the_planted_straggler_is_named_with_its_products() -> None:
    (late,) = ranks_of("straggler").stragglers
    assert (late.rank, late.pattern, late.waiting) == (3, "persistent", (0, 1, 2))
    (cause,) = late.causes
    assert (cause.kind, cause.what, json.loads(cause.input_dims)) == (
        "more work",
        "aten::mm",
        EXTRA,
    )
    assert (cause.calls, cause.usual_calls) == (20, 0)
    extra = sorted(raw_rank("straggler", 3)[1].values())
    assert cause.longer_ns == extra[1]
    # 20 products of 2 x 4096 cubed FLOPs, at 3.9 ms 700 TFLOP/s.
    assert late.late_ns == pytest.approx(sum(extra) / 3, rel=0.001)
    assert 3.2e6 < late.late_ns < 4.2e6
    # Nothing of it is before any other collective than the first.
    assert late.at is not None
    assert (late.at.collective, late.at.nth, late.at.of) == ("all-reduce", 1, 11)
    assert late.at.waited_ns == pytest.approx(late.late_ns, rel=0.1)
    assert late.step_ns - late.step_without_ns == late.beyond_next_ns


@pytest.mark.parametrize("others", [(0, 3), (1, 2, 3), (0, 1, 2, 3)])
def test_ranks_that_only_vary_are_no_stragglers(others: tuple[int, ...]) -> None:
    """Also where fewer are compared: the groups are then of as many."""
    made = [
        RankSummary(
            each.process,
            each.steps,
            each.collectives.with_columns(group_size=pl.lit(len(others), pl.Int32)),
            each.work,
            each.idle,
            each.states,
        )
        for each in summaries_of("ddp")
        if each.rank in others
    ]
    found = join(made, instances(made))
    assert found is not None
    assert found.stragglers == ()
    assert found.disagreements == ()
    # What is seen of rank 3 is said, with its reason.
    (late,) = found.late_launches
    assert late.rank == 3
    assert late.at_most_ns is None


@pytest.mark.parametrize("name", ["straggler", "ddp"])
def test_clocks_of_one_host_are_aligned_within_its_transfers(name: str) -> None:
    clocks = ranks_of(name).clocks
    assert clocks is not None
    assert (clocks.unaligned, clocks.reason) == ((), "")
    assert clocks.residual_ns is not None
    assert clocks.residual_ns < 30_000
    assert all(abs(clock.offset_ns) < 20_000 for clock in clocks.clocks)
