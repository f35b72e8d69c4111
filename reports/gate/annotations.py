"""Verdicts as workflow commands, which GitHub shows beside the lines of a pull request."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from gpuprof.reports.formatting import printable
from gpuprof.reports.gate import sentences
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.result import GateResult, Place

# GitHub shows no more of a kind in one step.
_MOST = 10


def render_annotations(result: GateResult, *, folder: str = "") -> str:
    """One `::error` or `::warning` line for each verdict that asks for attention.

    `folder` is where the gate ran, relative to the root of the repository. Verdicts that decide
    the exit code are errors; of each kind there are at most 10, and the last says how many more.
    """
    rows = [row.judgement for row in sentences.rows(result.judgements)]
    errors = [j for j in rows if sentences.decides(j, result)]
    warned = ("REGRESSED", "ERROR", "INCOMPARABLE", "INCONCLUSIVE")
    warnings = [j for j in rows if j.verdict in warned and j not in errors]
    lines = []
    for kind, found in (("error", errors), ("warning", warnings)):
        for index, judgement in enumerate(found[:_MOST]):
            more = len(found) - _MOST if index == _MOST - 1 else 0
            lines.append(_line(kind, judgement, sentences.place(judgement, result), folder, more))
    return "".join(f"{line}\n" for line in lines)


def _line(kind: str, judgement: Judgement, place: Place | None, folder: str, more: int) -> str:
    properties = {}
    if place is not None:
        file = PurePosixPath(folder, place.file.replace("\\", "/"))
        properties = {"file": str(file), "line": str(place.line)}
    properties["title"] = (
        f"gpuprof gate: {judgement.benchmark} {judgement.metric.name} "
        f"{sentences.verdict_word(judgement)}"
    )
    lines = (judgement.message, *((f"and {more} more of this kind",) if more else ()))
    return workflow_command(kind, properties, lines)


def workflow_command(kind: str, properties: Mapping[str, str], lines: Sequence[str]) -> str:
    r"""A command of one line, which shows `lines`; what does not print stands in them as \x1b.

    Source: GitHub's toolkit, packages/core/src/command.ts.
    """
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{kind} {listed}::{'%0A'.join(map(_data, lines))}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
