"""What to look at first in a gate's result, in one sentence for every report."""

from gpuprof.reports.formatting import percent, printable, sentence
from gpuprof.reports.gate import sentences
from gpuprof.reports.gate.reasons import reasons
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.result import GateResult

_FINE = ("PASS", "IMPROVED")


def first_look(result: GateResult) -> str:
    """The verdict that asks for attention first, its figures, and its largest cause or place.

    Where none does, from which change on one would have been found.
    """
    held = [judgement for judgement in result.judgements if sentences.held(judgement)]
    asking = [row.judgement for row in sentences.rows(held) if row.judgement.verdict not in _FINE]
    if asking:
        return sentence(f"look first at {sentences.remark(asking[0])}{_because(asking[0], result)}")
    if not held:
        return ""
    known = [each.smallest_detectable_with_rerun for each in held]
    detectable = [change for change in known if change is not None]
    found = f"; changes from {percent(max(detectable))} on can be found" if detectable else ""
    return f"Nothing is worse than its limit allows{found}."


def _because(judgement: Judgement, result: GateResult) -> str:
    """The largest part of the change, where it explains the verdict; else the place."""
    explanation = next(
        (each for each in result.explanations if each.benchmark == judgement.benchmark), None
    )
    if explanation is not None and judgement.verdict == "REGRESSED":
        why = reasons(explanation, result)
        if why.explains and why.lines:
            return f"; the largest part is {printable(why.lines[0])}"
    place = sentences.place(judgement, result)
    return "" if place is None else f"; {printable(place.file)}:{place.line}"
