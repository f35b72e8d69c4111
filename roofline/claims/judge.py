"""Which claims no such GPU can meet, which contradict each other, and which say too little.

A claim names a GPU without its variant, so it is held against the fastest variant of the device
table: what that cannot do, none can. Claims are printed with two or three digits; one within
`ROUNDING` of the floor is let pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuprof.roofline.bench.results import BenchReport, CaseResult
from gpuprof.roofline.claims.byte_sizes import parse_bytes
from gpuprof.roofline.claims.table import Claim, ClaimTable
from gpuprof.roofline.claims.work import ClaimedWork, ClaimError, work_of
from gpuprof.roofline.machine.ceilings import Ceiling, Roof, datasheet_ceilings
from gpuprof.roofline.machine.devices import DeviceSpec, find_spec, rows_with_words
from gpuprof.roofline.machine.roof_time import roof_time

ROUNDING = 0.03
# Two claims of the same thing further apart than this contradict each other.
_DISAGREEMENT = 0.05

Verdict = Literal[
    "possible",
    "only with in-network reduction",
    "beyond the hardware",
    "contradicts another claim",
    "not checkable",
]


@dataclass(frozen=True)
class Floor:
    """The least time for some work, and what sets it."""

    ns: float
    # "fp16 tensor (datasheet, dense)", "DRAM (datasheet)", "link, one direction (datasheet)"
    ceiling: str
    # FLOP/s, or bytes/s.
    rate: float


@dataclass(frozen=True)
class Conflict:
    """What another claim, or another figure of the same one, makes of a figure."""

    other: str
    quantity: Literal["time", "tokens/s", "MFU"]
    claimed: float
    # What it must be for the other to hold: ns, tokens/s, share of 1.
    implied: float


@dataclass(frozen=True)
class Measured:
    """The fastest version that a bench measured for the claim's problem."""

    version: str
    time_ns: int


@dataclass(frozen=True)
class Judgement:
    """A claim, its verdict, and the figures behind it; None where unknown."""

    claim: Claim
    verdict: Verdict
    # Why it is not checkable; "" where it is.
    reason: str = ""
    work: ClaimedWork | None = None
    claimed_ns: float | None = None
    floor: Floor | None = None
    conflicts: tuple[Conflict, ...] = ()
    # Claimed time over that of the claim it is compared with.
    ratio: float | None = None
    measured: Measured | None = None


def judge(table: ClaimTable, measured: BenchReport | None = None) -> tuple[Judgement, ...]:
    """A judgement for each claim, in order; `measured` is a bench of one of the claimed GPUs."""
    judged: dict[str, Judgement] = {}
    works: dict[str, ClaimedWork | None] = {}
    for claim in table.claim:
        judgement = _by_hardware(claim, works, judged)
        works[claim.name] = judgement.work
        judged[claim.name] = replace(judgement, measured=_measured(claim, measured))
    for claim in table.claim:
        for conflict in _conflicts(claim, judged):
            _note(judged, claim.name, conflict)
            if conflict.other in judged and conflict.quantity == "time":
                mirrored = Conflict(claim.name, "time", conflict.implied, conflict.claimed)
                _note(judged, conflict.other, mirrored)
    return tuple(judged.values())


def _by_hardware(
    claim: Claim, works: dict[str, ClaimedWork | None], judged: dict[str, Judgement]
) -> Judgement:
    """Hold a claim against its floor alone."""
    rows = rows_with_words(claim.gpu)
    if not rows:
        return Judgement(claim, "not checkable", f"{claim.gpu} is not in the device table")
    try:
        work = work_of(claim, works)
    except ClaimError as error:
        return Judgement(claim, "not checkable", str(error))
    claimed_ns = _claimed_ns(claim, work)
    if claim.kind == "unsized":
        other = judged.get(claim.of)
        ratio = None
        if other is not None and other.claimed_ns and claimed_ns:
            ratio = claimed_ns / other.claimed_ns
        reason = "its size is not stated, so nothing can be counted"
        return Judgement(claim, "not checkable", reason, None, claimed_ns, ratio=ratio)
    if claim.kind == "throughput":
        return Judgement(claim, "possible")
    if work is None or claimed_ns is None:
        reason = "it claims no time or rate" if work else "the work of its parts is not known"
        return Judgement(claim, "not checkable", reason, work)
    floor = _floor(work, rows)
    if floor is None:
        reason = f"no {claim.dtype} peak of {claim.gpu} is in the device table"
        return Judgement(claim, "not checkable", reason, work, claimed_ns)
    verdict: Verdict = "possible"
    if floor.ns > claimed_ns * (1 + ROUNDING):
        verdict = "beyond the hardware"
        if claim.kind == "all-reduce" and _with_reduction_ns(claim, floor) <= claimed_ns:
            verdict = "only with in-network reduction"
    return Judgement(claim, verdict, "", work, claimed_ns, floor)


def _claimed_ns(claim: Claim, work: ClaimedWork | None) -> float | None:
    if claim.time_us is not None:
        return claim.time_us * 1e3
    if work is None:
        return None
    if claim.tflops:
        return work.flop_count / claim.tflops / 1e3
    if claim.bus_gb_per_s:
        return work.bus_bytes / claim.bus_gb_per_s
    return None


def _floor(work: ClaimedWork, rows: Sequence[DeviceSpec]) -> Floor | None:
    """The least time on the fastest of `rows`."""
    if work.bus_bytes:
        rates = [row.link_gb_per_s / 2 * 1e9 for row in rows if row.link_gb_per_s]
        if not rates:
            return None
        return Floor(work.bus_bytes / max(rates) * 1e9, "link, one way (datasheet)", max(rates))
    binding = roof_time(work.flops, work.bytes_moved, _best_roof(rows)).binding
    if binding is None:
        return None
    return Floor(binding.ns, binding.ceiling.label, binding.ceiling.rate)


def _best_roof(rows: Sequence[DeviceSpec]) -> Roof:
    best: dict[tuple[object, ...], Ceiling] = {}
    for row in rows:
        for ceiling in datasheet_ceilings(row):
            key = (ceiling.kind, ceiling.unit, ceiling.precision, ceiling.level)
            if key not in best or best[key].rate < ceiling.rate:
                best[key] = ceiling
    return Roof(tuple(best.values()), "datasheet")


def _with_reduction_ns(claim: Claim, floor: Floor) -> float:
    """The floor where the switch adds: each rank sends its message once and receives the sum."""
    return parse_bytes(claim.size) / floor.rate * 1e9


def _conflicts(claim: Claim, judged: dict[str, Judgement]) -> list[Conflict]:
    found = []
    mine = judged[claim.name]
    if claim.same_as and (other := judged[claim.same_as].claimed_ns) and mine.claimed_ns:
        found.append(Conflict(claim.same_as, "time", mine.claimed_ns, other))
    if claim.kind == "sum" and mine.claimed_ns:
        parts = [judged[name].claimed_ns for name in claim.parts]
        if None not in parts:
            together = claim.times * sum(ns for ns in parts if ns is not None)
            found.append(Conflict("its parts", "time", mine.claimed_ns, together))
    if claim.kind == "throughput" and claim.tokens and claim.tokens_per_s:
        other = judged[claim.of].claimed_ns if claim.of else None
        if other:
            implied = claim.tokens / other * 1e9
            found.append(Conflict(claim.of, "tokens/s", claim.tokens_per_s, implied))
    if claim.mfu_percent and mine.work and mine.claimed_ns and mine.floor:
        reached = mine.work.flop_count / mine.claimed_ns * 1e9 / mine.floor.rate
        found.append(Conflict("its own time", "MFU", claim.mfu_percent / 100, reached))
    return found


def _note(judged: dict[str, Judgement], name: str, conflict: Conflict) -> None:
    """Keep `conflict` with the judgement called `name`, and let it decide a verdict still open."""
    judgement = judged[name]
    low, high = sorted((conflict.claimed, conflict.implied))
    verdict = judgement.verdict
    if high > low * (1 + _DISAGREEMENT) and verdict != "beyond the hardware":
        verdict = "contradicts another claim"
    judged[name] = replace(judgement, verdict=verdict, conflicts=(*judgement.conflicts, conflict))


def _measured(claim: Claim, report: BenchReport | None) -> Measured | None:
    """What a bench of the claimed GPU has for the claimed problem."""
    if report is None or report.device is None:
        return None
    if find_spec(report.device).spec not in rows_with_words(claim.gpu):
        return None
    matching = (
        case
        for case in report.cases
        if case.error is None and case.median_ns is not None and _is_of(case, claim, report.ranks)
    )
    best = min(matching, key=lambda case: case.median_ns or 0, default=None)
    if best is None or best.median_ns is None:
        return None
    return Measured(f"{best.family}/{best.version} {best.dtype}", best.median_ns)


def _is_of(case: CaseResult, claim: Claim, ranks: int) -> bool:
    """Whether `case` solves the problem of `claim`."""
    if claim.kind == "gemm":
        return (case.family, case.size, case.dtype) == ("gemm", claim.size, claim.dtype)
    if claim.kind == "attention":
        batch, heads, length, head_size = claim.size.split("x")
        mode = "causal-forward" if claim.causal else "forward"
        size = f"{mode}:{batch}x{heads}x{heads}x{length}x{head_size}"
        return (case.family, case.size, case.dtype) == ("attention", size, claim.dtype)
    if claim.kind == "all-reduce" and claim.ranks == ranks:
        collective, _, message = case.size.partition(":")
        same = case.family == "collectives" and collective == "all-reduce"
        return same and parse_bytes(message) == parse_bytes(claim.size)
    return False
