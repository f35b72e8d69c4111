"""Which claims no such GPU can meet, which contradict each other, and which say too little.

Claims are printed with two or three digits; one within `ROUNDING` of the floor is let pass.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from gpuprof.roofline.bench.results import BenchReport
from gpuprof.roofline.claims.claim import Claim, ClaimTable, not_stated
from gpuprof.roofline.claims.floor import Floor, compute_ns, floor_of
from gpuprof.roofline.claims.measured import BenchTime, measured_of
from gpuprof.roofline.claims.work import (
    ITEM_BYTES,
    ClaimedWork,
    ClaimError,
    message_bytes,
    work_of,
)
from gpuprof.roofline.machine.devices import DeviceSpec, rows_with_words

ROUNDING = 0.03
# Two claims of the same thing further apart than this contradict each other.
DISAGREEMENT = 0.05
# Without these, bounds over all GPUs and dtypes can still be told.
_BOUNDED = {"GPU", "dtype"}

ClaimVerdict = Literal[
    "possible",
    "only with in-network reduction",
    "beyond the hardware",
    "contradicts another claim",
    "not checkable",
]
_Works = Mapping[str, ClaimedWork | None]


@dataclass(frozen=True)
class Conflict:
    """What another claim, or another figure of the same one, makes of a figure."""

    other: str
    quantity: Literal["time", "tokens/s", "MFU"]
    claimed: float
    # What it must be for the other to hold: ns, tokens/s, share of 1.
    implied: float


@dataclass(frozen=True)
class ClaimJudgement:
    """A claim, its verdict, and the figures behind it; None where unknown."""

    claim: Claim
    verdict: ClaimVerdict
    # Why it is not checkable; "" where it is.
    reason: str = ""
    work: ClaimedWork | None = None
    claimed_ns: float | None = None
    floor: Floor | None = None
    conflicts: tuple[Conflict, ...] = ()
    # Claimed time over that of the claim it is compared with.
    ratio: float | None = None
    measured: BenchTime | None = None


def judge(table: ClaimTable, measured: BenchReport | None = None) -> tuple[ClaimJudgement, ...]:
    """A judgement for each claim, in order; `measured` is a bench of one of the claimed GPUs."""
    judged: dict[str, ClaimJudgement] = {}
    works: dict[str, ClaimedWork | None] = {}
    for claim in table.claim:
        judgement = _by_hardware(claim, works, judged)
        works[claim.name] = judgement.work
        judged[claim.name] = replace(judgement, measured=measured_of(claim, measured))
    for claim in table.claim:
        for conflict in _conflicts(claim, judged):
            _note(judged, claim.name, conflict)
            if conflict.other == claim.same_as:
                mirrored = Conflict(claim.name, "time", conflict.implied, conflict.claimed)
                _note(judged, conflict.other, mirrored)
    return tuple(judged.values())


def _by_hardware(
    claim: Claim, works: _Works, judged: Mapping[str, ClaimJudgement]
) -> ClaimJudgement:
    """Compare a claim with its floor alone."""
    if claim.kind == "unsized":
        return _unsized(claim, judged)
    unstated = not_stated(claim)
    if claim.kind == "throughput":
        return _throughput(claim, unstated, judged)
    rows = rows_with_words(claim.gpu)
    if not rows:
        return ClaimJudgement(claim, "not checkable", f"{claim.gpu} is not in the device table")
    try:
        if set(unstated) - _BOUNDED:
            known = not set(unstated) - {"GPU", "time or rate"}
            work = work_of(claim, works) if known else None
            return ClaimJudgement(claim, "not checkable", _unstated(unstated), work, claim.time_ns)
        if unstated:
            return _bounded(claim, unstated, works, rows)
        return _on(rows, claim, works)
    except ClaimError as error:
        return ClaimJudgement(claim, "not checkable", f"{error.key}: {error}")


def _unsized(claim: Claim, judged: Mapping[str, ClaimJudgement]) -> ClaimJudgement:
    reason = "its size is not stated, so nothing can be counted"
    other = judged[claim.of].claimed_ns if claim.of else None
    ratio = claim.time_ns / other if claim.time_ns and other else None
    return ClaimJudgement(claim, "not checkable", reason, None, claim.time_ns, ratio=ratio)


def _throughput(
    claim: Claim, unstated: tuple[str, ...], judged: Mapping[str, ClaimJudgement]
) -> ClaimJudgement:
    if unstated:
        return ClaimJudgement(claim, "not checkable", _unstated(unstated))
    if judged[claim.of].claimed_ns is None:
        return ClaimJudgement(claim, "not checkable", f"the time of {claim.of} is not known")
    return ClaimJudgement(claim, "possible")


def _on(rows: Sequence[DeviceSpec], claim: Claim, works: _Works) -> ClaimJudgement:
    """Compare a claim that states its work and its dtype with the fastest of `rows`."""
    work = work_of(claim, works)
    if work is None:
        reason = "the work of its parts is not known"
        return ClaimJudgement(claim, "not checkable", reason, None, claim.time_ns)
    claimed_ns = next(iter(_claimed_times(claim, work)), None)
    if claimed_ns is None:
        return ClaimJudgement(
            claim, "not checkable", "it claims a rate of work that it lacks", work
        )
    floor = floor_of(work, rows)
    if floor is None:
        rate = "link rate" if work.bus_bytes else f"{claim.dtype} peak".strip()
        reason = f"no {rate} of {claim.gpu} is in the device table"
        return ClaimJudgement(claim, "not checkable", reason, work, claimed_ns)
    verdict: ClaimVerdict = "possible"
    if floor.ns > claimed_ns * (1 + ROUNDING):
        verdict = "beyond the hardware"
        if claim.kind == "all-reduce" and _with_reduction_ns(claim, floor) <= claimed_ns:
            verdict = "only with in-network reduction"
    return ClaimJudgement(claim, verdict, "", work, claimed_ns, floor)


def _bounded(
    claim: Claim, unstated: tuple[str, ...], works: _Works, rows: Sequence[DeviceSpec]
) -> ClaimJudgement:
    """Judge a claim without its GPU or dtype: what all of them rule out is ruled out."""
    dtypes = tuple(ITEM_BYTES) if "dtype" in unstated else (claim.dtype,)
    stated = [msgspec.structs.replace(claim, dtype=dtype) for dtype in dtypes]
    fastest = [_on(rows, one, works) for one in stated]
    floors = [one for one in fastest if one.floor is not None]
    if not floors:
        return replace(fastest[0], claim=claim, reason=_unstated(unstated))
    if all(one.verdict == "beyond the hardware" for one in floors):
        nearest = min(floors, key=lambda one: one.floor.ns if one.floor else math.inf)
        return replace(nearest, claim=claim)
    dtypes_of: dict[int, list[str]] = {}
    for one in stated:
        verdicts = [_on([row], one, works).verdict for row in rows]
        able = sum(v in ("possible", "only with in-network reduction") for v in verdicts)
        if able:
            dtypes_of.setdefault(able, []).append(one.dtype)
    could = (
        f"{able} could in {' and '.join(names)}" if "dtype" in unstated else f"{able} could"
        for able, names in dtypes_of.items()
    )
    reason = (
        f"{_unstated(unstated)}; the device table has {len(rows)} {claim.gpu or 'GPUs'}, "
        f"of which {', '.join(could)}"
    )
    work = None if "dtype" in unstated else fastest[0].work
    return ClaimJudgement(claim, "not checkable", reason, work, fastest[0].claimed_ns)


def _unstated(words: tuple[str, ...]) -> str:
    """ "its GPU, size and dtype are not stated"."""
    *others, last = words
    if not others:
        return f"its {last} {'are' if last.endswith('s') else 'is'} not stated"
    return f"its {', '.join(others)} and {last} are not stated"


def _claimed_times(claim: Claim, work: ClaimedWork) -> list[float]:
    """The time in ns by each figure of `claim`; the first counts."""
    times = [] if claim.time_ns is None else [claim.time_ns]
    if claim.tflops and work.flop_count:
        times.append(work.flop_count / claim.tflops / 1e3)
    if claim.bus_gb_per_s and work.bus_bytes:
        times.append(work.bus_bytes / claim.bus_gb_per_s)
    return times


def _with_reduction_ns(claim: Claim, floor: Floor) -> float:
    """The floor where the switch adds: each rank sends its message once and receives the sum."""
    return message_bytes(claim) / floor.rate * 1e9


def _conflicts(claim: Claim, judged: Mapping[str, ClaimJudgement]) -> list[Conflict]:
    found = []
    mine = judged[claim.name]
    if claim.same_as and (other := judged[claim.same_as].claimed_ns) and mine.claimed_ns:
        found.append(Conflict(claim.same_as, "time", mine.claimed_ns, other))
    if claim.kind == "sum" and mine.claimed_ns:
        parts = [judged[name].claimed_ns for name in claim.parts]
        together = claim.times * sum(ns for ns in parts if ns is not None)
        if None not in parts and 0 < together < math.inf:
            found.append(Conflict("its parts", "time", mine.claimed_ns, together))
    if claim.kind == "throughput" and claim.tokens and claim.tokens_per_s and claim.of:
        other = judged[claim.of].claimed_ns
        if other:
            implied = claim.tokens / other * 1e9
            found.append(Conflict(claim.of, "tokens/s", claim.tokens_per_s, implied))
    if mine.work and mine.claimed_ns:
        found += (
            Conflict("its own rate", "time", mine.claimed_ns, ns)
            for ns in _claimed_times(claim, mine.work)[1:]
        )
        if claim.mfu_percent and mine.floor and claim.gpu:
            at_peak = compute_ns(mine.work, rows_with_words(claim.gpu))
            if at_peak is not None:
                reached = at_peak / mine.claimed_ns
                found.append(Conflict("its own time", "MFU", claim.mfu_percent / 100, reached))
    return found


def _note(judged: dict[str, ClaimJudgement], name: str, conflict: Conflict) -> None:
    """Keep `conflict` with the judgement called `name`, and let it decide a verdict still open."""
    judgement = judged[name]
    low, high = sorted((conflict.claimed, conflict.implied))
    verdict = judgement.verdict
    if high > low * (1 + DISAGREEMENT) and verdict != "beyond the hardware":
        verdict = "contradicts another claim"
    judged[name] = replace(judgement, verdict=verdict, conflicts=(*judgement.conflicts, conflict))
