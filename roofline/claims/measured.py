"""What a bench measured for the problem of a claim."""

from dataclasses import dataclass

from gpuprof.roofline.bench.results import BenchReport, CaseResult
from gpuprof.roofline.claims.byte_sizes import parse_bytes
from gpuprof.roofline.claims.claim import Claim, not_stated
from gpuprof.roofline.claims.convolution_shape import parse_convolution
from gpuprof.roofline.claims.work import attention_size, message_bytes
from gpuprof.roofline.machine.devices import find_spec, rows_with_words


@dataclass(frozen=True)
class BenchTime:
    """The fastest version that a bench measured for the claim's problem."""

    version: str
    time_ns: int


def is_of_claimed_gpu(report: BenchReport, claim: Claim) -> bool:
    """Whether `report` is of the GPU that `claim` names, or of one of its variants."""
    if report.device is None or not claim.gpu:
        return False
    return find_spec(report.device).spec in rows_with_words(claim.gpu)


def measured_of(claim: Claim, report: BenchReport | None) -> BenchTime | None:
    """What a bench of the claimed GPU has for the claimed problem."""
    if report is None or not is_of_claimed_gpu(report, claim):
        return None
    if set(not_stated(claim)) - {"time or rate"}:
        return None
    matching = (
        case
        for case in report.cases
        if case.error is None and case.median_ns is not None and _solves(case, claim, report.ranks)
    )
    best = min(matching, key=lambda case: case.median_ns or 0, default=None)
    if best is None or best.median_ns is None:
        return None
    return BenchTime(f"{best.family}/{best.version} {best.dtype}", best.median_ns)


def _solves(case: CaseResult, claim: Claim, ranks: int) -> bool:
    """Whether `case` solves the problem of `claim`; a size of no known form solves none."""
    try:
        return _is_of(case, claim, ranks)
    except ValueError:
        return False


def _is_of(case: CaseResult, claim: Claim, ranks: int) -> bool:
    if claim.kind == "all-reduce":
        return claim.ranks == ranks and _is_of_message(case, message_bytes(claim))
    if (case.family, case.dtype) != (claim.kind, claim.dtype):
        return False
    if claim.kind == "gemm":
        return case.size == claim.size
    if claim.kind == "attention":
        batch, heads, length, head_size = attention_size(claim)
        mode = "causal-forward" if claim.causal else "forward"
        return case.size == f"{mode}:{batch}x{heads}x{heads}x{length}x{head_size}"
    # "+bn-relu" does more than the convolution that is claimed.
    return (
        claim.kind == "convolution"
        and "+" not in case.size
        and parse_convolution(case.size) == parse_convolution(claim.size)
    )


def _is_of_message(case: CaseResult, size: int) -> bool:
    collective, _, message = case.size.partition(":")
    same = case.family == "collectives" and collective == "all-reduce"
    return same and parse_bytes(message) == size
