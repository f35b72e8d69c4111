"""What a gate that ran out of time says: which verdicts are open, and what they could have shown.

A limit of time ends the measuring between two looks and never adds one, so that it costs power and
raises no false alarm: what is decided is decided by the looks that were reached.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gpuprof.roofline.gate.judgement import Judgement, Reason
from gpuprof.roofline.gate.series import TIME


def out_of_time(
    judgements: Sequence[Judgement], targets: Iterable[str], limit: str
) -> tuple[Judgement, ...]:
    """`judgements` as they stand where the time is over; `limit` is in words: "90 s".

    What still wants pairs is INCONCLUSIVE for that reason and says what its pairs detect; what
    has no data yet stays the error that it is. `targets` are those of which nothing was measured.
    """
    never = (
        Judgement(
            benchmark=target,
            metric=TIME,
            verdict="INCONCLUSIVE",
            reason="time-limit",
            message=f"not measured within {limit}",
        )
        for target in targets
    )
    return (*(_ended(judgement, limit) for judgement in judgements), *never)


def _ended(judgement: Judgement, limit: str) -> Judgement:
    if judgement.pairs_wanted == 0:
        return judgement
    # Pairs measured since the last look are no look, and its figures leave them out.
    looked_at = len(judgement.pair_changes)
    needed = judgement.pairs + judgement.pairs_wanted
    undecided = judgement.verdict == "INCONCLUSIVE"
    reason: Reason = "time-limit" if undecided else judgement.reason
    seen = judgement.smallest_detectable
    detects = "" if seen is None else f", and {_pairs(looked_at)} changes above {_share(seen)}"
    stopped = f"the next look takes {needed} usable pairs, {limit} were over before{detects}"
    return msgspec.structs.replace(
        without_more_looks(judgement),
        pairs_wanted=0,
        reason=reason,
        message=f"{judgement.message}; {stopped}{detects}",
    )


def _share(fraction: float) -> str:
    return f"{fraction:.1%}" if fraction < 1 else f"{fraction:.0%}"


def _pairs(count: int) -> str:
    return f"{count} pairs detect" if count != 1 else "1 pair detects"


def without_more_looks(judgement: Judgement) -> Judgement:
    """`judgement` with what its own pairs detect: there was no time to measure it again."""
    return msgspec.structs.replace(
        judgement, smallest_detectable_with_rerun=judgement.smallest_detectable
    )
