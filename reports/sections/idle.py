"""Why the device had no work: the causes, and what the host did meanwhile."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Paragraph, folded_table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.classes import bottleneck_class
from gpuprof.roofline.idle.evidence import FIRST_STEPS, count_text, culprit_text
from gpuprof.roofline.idle_figures import IdleCause, IdleCulprit, IdleTime

# Causes that the summary names, from which share of the step on, and culprits of each.
_NAMED: Final = 3
_NOTABLE: Final = 0.03
_CULPRITS: Final = 3
# Of its cause: what a smaller culprit costs is not named in the summary.
_NEGLIGIBLE: Final = 0.05
_COLUMNS: Final = (
    Column("Cause"),
    Column("Time", "number"),
    Column("Share", "number"),
    Column("Without the profiler", "number"),
    Column("When profiled", "number"),
    Column("What"),
    Column("In", "code"),
    Column("Calls", "number"),
    Column("Costs", "number"),
)


def _summary(analysis: Analysis) -> Sequence[Block]:
    """What the causes that cost much of the step come of, each on one line.

    Their times stand in the split, the largest culprit of the largest loss beside that.
    """
    if analysis.idle is None or analysis.split is None:
        return ()
    step_ns = analysis.split.step_ns
    causes = [one for one in analysis.idle.causes if one.nanoseconds >= _NOTABLE * step_ns]
    facts: list[Fact] = []
    for cause in causes[:_NAMED]:
        told = int(cause.kind == analysis.bottleneck.kind)
        culprits = [
            _said(one, analysis.idle)
            for one in cause.culprits[told:_CULPRITS]
            if one.nanoseconds >= _NEGLIGIBLE * cause.nanoseconds
        ]
        if culprits:
            label = "" if facts else "Waits"
            facts.append(Fact(label, cause.kind, "; ".join(culprits), kind=cause.kind))
    return (Facts(tuple(facts)),) if facts else ()


def _said(culprit: IdleCulprit, idle: IdleTime) -> str:
    """ "3.05 ms .item() (aten::_local_scalar_dense, cudaStreamSynchronize), 1 a step"."""
    text = f"{formatting.duration(culprit.nanoseconds)} {culprit_text(culprit)}"
    if culprit.kernel:
        text += f" ({formatting.kernel_name(culprit.kernel)})"
    if idle.basis != "whole trace" and culprit.calls_per_step is not None:
        text += f", {count_text(culprit.calls_per_step)} a step"
    return f"{text} ({culprit.detail})" if culprit.detail else text


def _body(analysis: Analysis) -> Sequence[Block]:
    idle, split = analysis.idle, analysis.split
    if idle is None or split is None or not idle.nanoseconds:
        return ()
    rows = tuple(_rows(idle, split.step_ns))
    return (Paragraph(_lead(idle)), *folded_table(_COLUMNS, rows, "rows"))


def _lead(idle: IdleTime) -> str:
    waits = formatting.duration(idle.nanoseconds)
    if idle.is_of_one_first_step:
        return (
            f"The device has no work for {waits} of a step, and nothing tells why: {FIRST_STEPS}. "
            "What is named below cost one of them."
        )
    if idle.basis == "whole trace":
        return f"The device has no work for {waits} of the trace."
    if idle.basis != "timed":
        return (
            f"The device has no work for {waits} of a profiled step. The profiler lengthens what "
            "the host does to launch, and so a part of that."
        )
    return (
        f"The device has no work for {waits} of a step, and for "
        f"{formatting.duration(idle.profiled_ns)} of a profiled one, where the causes were seen. "
        "What the host waits for or does beside launching is taken to last as long without the "
        "profiler, so that what a step is shorter by is launching."
    )


def _rows(idle: IdleTime, step_ns: int) -> Iterable[tuple[str, ...]]:
    profiled = idle.is_of_one_first_step
    for cause in idle.causes:
        share = formatting.percent(cause.nanoseconds / step_ns)
        head: tuple[str, ...] = (
            bottleneck_class(cause.kind).name,
            formatting.duration(cause.nanoseconds),
            share,
            _range(cause),
            formatting.duration(cause.profiled_ns),
        )
        for culprit in cause.culprits:
            yield (*head, *_culprit(culprit, profiled=profiled))
            head = ("",) * len(head)
        if cause.others:
            number = formatting.counted(cause.others, "other")
            yield (*head, number, "", "", formatting.duration(cause.others_ns))
        elif not cause.culprits:
            yield (*head, formatting.UNKNOWN, "", "", "")


def _range(cause: IdleCause) -> str:
    if cause.least_ns is None or cause.most_ns is None:
        return formatting.UNKNOWN
    if cause.least_ns == cause.most_ns:
        return "the same"
    return f"{formatting.duration(cause.least_ns)} to {formatting.duration(cause.most_ns)}"


def _culprit(culprit: IdleCulprit, *, profiled: bool) -> tuple[str, ...]:
    inside = (
        formatting.kernel_name(culprit.kernel) if culprit.kernel else "",
        culprit.operator,
        culprit.call if culprit.call != culprit.what else "",
        culprit.place,
        culprit.detail,
    )
    return (
        culprit.what,
        ", ".join(part for part in inside if part),
        count_text(culprit.calls_per_step),
        formatting.duration(culprit.profiled_ns if profiled else culprit.nanoseconds),
    )


SECTION = Section(
    key="idle",
    title=titled("Why the device waits"),
    fields=("idle",),
    summary=_summary,
    body=_body,
)
