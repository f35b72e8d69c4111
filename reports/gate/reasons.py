"""Why a benchmark changed, and what a process that failed said, in words for every report."""

from dataclasses import dataclass

from gpuprof.reports.comparison.amounts import delta
from gpuprof.reports.formatting import duration, kernel_name
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.result import Culprit, Explanation, GateResult
from gpuprof.roofline.gate.series import TIME

# What carries a change, in as many lines, and no line for less than this share of it.
_CULPRITS = 5
_WORTH_A_LINE = 0.01
# From this share on, what no part carries is said.
_MUCH_UNEXPLAINED = 0.2
# As a comparison calls them.
_ONE_SIDED = {"new": "new", "removed": "gone"}


@dataclass(frozen=True)
class Reasons:
    """What carries the change of one benchmark."""

    title: str
    # On the times in `lines`: what they are, and how they relate to the verdict; "" where nothing
    # need be said.
    note: str
    # Largest first.
    lines: tuple[str, ...]
    # Whether they are parts of the change that the verdict is about.
    explains: bool

    @property
    def told(self) -> tuple[str, ...]:
        """The note and the lines, for forms that have but one kind of line."""
        return (self.note, *self.lines) if self.note else self.lines


@dataclass(frozen=True)
class LastWords:
    """What a process that failed wrote last."""

    title: str
    lines: tuple[str, ...]


def reasons(explanation: Explanation, result: GateResult) -> Reasons:
    """Why the benchmark of `explanation` changed.

    Shares are those of the step that was profiled, so they are told only where the verdict on the
    unprofiled steps says that the time changed, and the profiled one went the same way.
    """
    time = next(
        (
            judgement
            for judgement in result.judgements
            if judgement.benchmark == explanation.benchmark and judgement.metric == TIME
        ),
        None,
    )
    shown_ns = None if time is None else _shown_change_ns(time)
    step = explanation.comparison.step
    explains = shown_ns is not None and step is not None and shown_ns * step.change_ns > 0
    return Reasons(
        title=f"What changed in {explanation.benchmark}",
        note=_note(explanation, time, shown_ns, explains=explains),
        lines=_lines(explanation, shares=explains),
        explains=explains,
    )


def _shown_change_ns(time: Judgement) -> float | None:
    """By how much the steps without a profiler changed; None where no change is shown."""
    if time.verdict not in ("REGRESSED", "IMPROVED") or time.base is None or time.head is None:
        return None
    return time.head - time.base


def _note(
    explanation: Explanation, time: Judgement | None, shown_ns: float | None, *, explains: bool
) -> str:
    step = explanation.comparison.step
    if step is None:
        return ""
    if shown_ns is None:
        is_open = time is None or time.verdict != "PASS"
        said = (
            "Whether the time of a step changed is open"
            if is_open
            else "No change of time is shown"
        )
        return f"{said}; these are the differences between the kernels of one pair."
    if not explains:
        return (
            f"The steps of the pair that is compared here changed by {delta(step.change_ns)}, "
            f"those of all pairs by {delta(shown_ns)}: this does not explain it."
        )
    if step.lengths.quantity == "profiled step time":
        return (
            f"Times are those of profiled steps, which changed by {delta(step.change_ns)}; "
            f"without the profiler a step changed by {delta(shown_ns)}."
        )
    return ""


def _lines(explanation: Explanation, *, shares: bool) -> tuple[str, ...]:
    largest = explanation.culprits[:_CULPRITS]
    if not shares:
        return tuple(culprit_line(culprit, share=False) for culprit in largest)
    told = [c for c in largest if c.share is None or abs(c.share) >= _WORTH_A_LINE]
    lines = [culprit_line(culprit, share=True) for culprit in (told or largest[:1])]
    return (*lines, said) if (said := unexplained(explanation)) else tuple(lines)


def culprit_line(culprit: Culprit, *, share: bool) -> str:
    """ "+12.3 us  softmax_kernel (aten::softmax), 98% of the change, new"."""
    names = [kernel_name(name) for name in culprit.name.split(" -> ")]
    parts = [f"{duration(culprit.change_ns)} a step: {' → '.join(names)}"]
    if culprit.op and culprit.op not in culprit.name:
        parts[0] += f" ({culprit.op})"
    if share and culprit.share is not None:
        parts.append(f"{culprit.share:.0%} of the change")
    if culprit.match in _ONE_SIDED:
        parts.append(_ONE_SIDED[culprit.match])
    elif len(names) > 1:
        parts.append("renamed")
    if culprit.source is not None:
        parts.append(f"{culprit.source.file}:{culprit.source.line}")
    return ("+" if culprit.change_ns > 0 else "") + ", ".join(parts)


def unexplained(explanation: Explanation) -> str:
    """A sentence where a fifth or more of the change is carried by no part; else ""."""
    step = explanation.comparison.step
    if step is None or step.unexplained_share is None or step.unexplained_share < _MUCH_UNEXPLAINED:
        return ""
    return f"{step.unexplained_share:.0%} of the change of the profiled step is unexplained"


def last_words(result: GateResult) -> tuple[LastWords, ...]:
    """What each process that failed said last, with where its log is."""
    labels = {"A": result.base.label, "B": result.head.label}
    return tuple(
        LastWords(
            title=f"What {process.target} of {labels[process.side]} said last ({process.log})",
            lines=process.last_lines,
        )
        for process in result.processes
        if process.failure and process.last_lines
    )


def last_words_of(judgement: Judgement, result: GateResult) -> tuple[str, ...]:
    """The same for one judgement: for a crash the lines of the process that failed."""
    if judgement.reason != "crashed":
        return ()
    return next(
        (
            process.last_lines
            for process in result.processes
            if process.failure and process.failure in judgement.message
        ),
        (),
    )
