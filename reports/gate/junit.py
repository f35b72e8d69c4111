"""The verdicts of a gate as JUnit XML: one test case for each metric of each benchmark."""

from xml.etree import ElementTree as ET

from gpuprof.reports.formatting import printable
from gpuprof.reports.gate import sentences
from gpuprof.reports.gate.reasons import last_words_of, reasons
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.result import GateResult

_SUITE = "gpuprof gate"


def render_junit(result: GateResult) -> str:
    """`result` as one test suite.

    What fails the gate is a failure or an error; INCONCLUSIVE and INCOMPARABLE are skipped with
    their reason, and so is what is only said: a warning's regression, and an advisory gate's.
    """
    judgements = result.judgements
    cases = [_case(judgement, result) for judgement in judgements]
    counts = {
        kind: sum(case.find(tag) is not None for case in cases)
        for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    attributes = {
        "name": _SUITE,
        "tests": str(len(cases)),
        **{kind: str(count) for kind, count in counts.items()},
        "time": f"{result.seconds:.1f}",
    }
    root = ET.Element("testsuites", attributes)
    suite = ET.SubElement(root, "testsuite", attributes)
    suite.extend(cases)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(judgement: Judgement, result: GateResult) -> ET.Element:
    attributes = {
        "classname": printable(judgement.benchmark),
        "name": printable(judgement.metric.name),
    }
    place = sentences.place(judgement, result)
    if place is not None:
        attributes |= {"file": printable(place.file), "line": str(place.line)}
    case = ET.Element("testcase", attributes)
    outcome = _outcome(judgement, result)
    if outcome is not None:
        element = ET.SubElement(
            case,
            outcome,
            {
                "message": _message(judgement),
                "type": f"{sentences.verdict_word(judgement)}.{judgement.reason}",
            },
        )
        element.text = "\n".join(_details(judgement, result))
    else:
        ET.SubElement(case, "system-out").text = _message(judgement)
    return case


def _outcome(judgement: Judgement, result: GateResult) -> str | None:
    """The element that is not there for what passes."""
    if judgement.verdict in ("REGRESSED", "ERROR") and sentences.decides(judgement, result):
        return "error" if judgement.verdict == "ERROR" else "failure"
    undecided = ("REGRESSED", "ERROR", "INCONCLUSIVE", "INCOMPARABLE")
    return "skipped" if judgement.verdict in undecided else None


def _message(judgement: Judgement) -> str:
    return printable(f"{sentences.verdict_word(judgement)}: {judgement.message}")


def _details(judgement: Judgement, result: GateResult) -> list[str]:
    """The figures, and what carries the change."""
    row = sentences.row(judgement)
    lines = [f"{judgement.metric.name} {row.figures} {row.change}".strip()]
    for explanation in result.explanations:
        if explanation.benchmark == judgement.benchmark:
            lines += reasons(explanation, result).told
    lines += last_words_of(judgement, result)
    return [printable(line) for line in lines]
