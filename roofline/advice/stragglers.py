"""What the job would gain if no rank made the others wait."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpuprof.roofline.advice.candidate import Candidate, Gain
from gpuprof.roofline.analysis import Bottleneck
from gpuprof.roofline.classes import OTHER_RANK
from gpuprof.roofline.durations import duration
from gpuprof.roofline.rank_figures import RanksAnalysis, Straggler
from gpuprof.roofline.ranks.late_text import (
    at_text,
    cause_text,
    clock_text,
    has_slow_clock,
    late_text,
    launches_text,
)

# What to do about a late rank, by what it has more of.
_OF_KIND: Final = {
    "more work": "straggler's work",
    "slower work": "straggler's speed",
    "idle": "straggler's host",
}
# Of the ranks that are late those that a sentence names.
_NAMED: Final = 2


def late_ranks(ranks: RanksAnalysis | None, waits_ns: int) -> Iterator[Candidate]:
    """One candidate for each straggler, and one for what else this rank waits for others.

    `waits_ns` is what a step of this rank is known to wait, exposed.
    """
    stragglers = () if ranks is None else ranks.stragglers
    for late in stragglers:
        yield _of_straggler(late)
    rest_ns = waits_ns - sum(late.costs_at_most_ns for late in stragglers)
    if rest_ns > 0:
        yield _of_others(rest_ns, ranks)


def with_late_ranks(bottleneck: Bottleneck, ranks: RanksAnalysis | None) -> Bottleneck:
    """`bottleneck` with who is waited for, where that is what holds the step back."""
    if ranks is None or bottleneck.kind != OTHER_RANK:
        return bottleneck
    said = [
        *map(late_text, ranks.stragglers[:_NAMED]),
        *map(launches_text, ranks.late_launches[:_NAMED]),
    ]
    evidence = "; ".join([bottleneck.evidence, *said])
    return msgspec.structs.replace(bottleneck, evidence=evidence)


def _of_straggler(late: Straggler) -> Candidate:
    cause = late.causes[0] if late.causes else None
    finding = "straggler's speed" if cause is None else _OF_KIND[cause.kind]
    if cause is not None and cause.kind == "slower work" and has_slow_clock(late):
        finding = "straggler's device"
    said = [
        late_text(late),
        "" if cause is None else cause_text(cause, cause.input_dims),
        "" if late.at is None else at_text(late.at),
        clock_text(late),
    ]
    what = f"rank {late.rank}" if cause is None else f"rank {late.rank}: {cause.what}"
    return Candidate(
        finding=finding,
        what=what,
        # Without it the others wait for the next one; at most all that they wait now is gone.
        gain=_gain(late),
        evidence="; ".join(filter(None, said)),
        place="" if cause is None else cause.place,
        module="" if cause is None else cause.module,
    )


def _gain(late: Straggler) -> Gain:
    most_ns = late.costs_at_most_ns
    gain_ns = min(late.beyond_next_ns, most_ns)
    return Gain(gain_ns, gain_ns // 2, most_ns)


def _of_others(waits_ns: int, ranks: RanksAnalysis | None) -> Candidate:
    """Waiting without a straggler: launches that the profiler makes late may be all of it."""
    launching = () if ranks is None else ranks.late_launches
    profiled_ns = sum(late.late_ns for late in launching)
    left_ns = max(0, waits_ns - profiled_ns)
    return Candidate(
        finding="waiting for ranks",
        what=OTHER_RANK,
        gain=Gain(left_ns, left_ns // 2, min(waits_ns, left_ns + _most_ns(ranks, profiled_ns))),
        evidence=f"{duration(waits_ns)} a step waits in collectives for another rank",
    )


def _most_ns(ranks: RanksAnalysis | None, profiled_ns: int) -> int:
    launching: Sequence[int | None] = (
        () if ranks is None else [late.at_most_ns for late in ranks.late_launches]
    )
    known = [ns for ns in launching if ns is not None]
    return sum(known) if len(known) == len(launching) else profiled_ns
