"""What every report of a gate says, in words; how it looks is up to each."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof.reports.formatting import (
    byte_count,
    byte_rate,
    count,
    counted,
    duration,
    percent,
    printable,
)
from gpuprof.roofline.gate.judgement import Judgement, Verdict
from gpuprof.roofline.gate.result import GateResult, Place
from gpuprof.roofline.gate.suite import KERNEL_NAMES

# What asks for attention first.
ORDER: tuple[Verdict, ...] = (
    "REGRESSED",
    "ERROR",
    "INCOMPARABLE",
    "INCONCLUSIVE",
    "CHANGED-KERNEL",
    "IMPROVED",
    "PASS",
)
# Metrics that new kernels make worse, however short those are.
_COUNTS = (KERNEL_NAMES, "kernels", "launches")


@dataclass(frozen=True)
class VerdictRow:
    """One judgement, its figures formatted."""

    judgement: Judgement
    # "12.3 → 12.9 ms"
    figures: str
    # "+5.2% [+4.1%, +6.3%]"
    change: str
    # "+5.2% ±1.1%": the same where there is little room.
    short_change: str
    # "2.1%": what these pairs, and more on suspicion, can find.
    detectable: str


def headline(result: GateResult) -> str:
    """One line: the outcome and how many benchmarks and verdicts it rests on."""
    benchmarks = len({judgement.benchmark for judgement in result.judgements})
    found = [
        f"{len(own)} {verdict.lower()}"
        for verdict in ORDER
        if (own := [j for j in result.judgements if j.verdict == verdict and held(j)])
    ]
    verdicts = ", ".join(found) or "nothing"
    return f"{outcome(result)}: {counted(benchmarks, 'benchmark')}, {verdicts}"


def held(judgement: Judgement) -> bool:
    """Whether a judgement is one that the gate can fail for, not only a remark."""
    return judgement.level == "error"


def verdict_word(judgement: Judgement) -> str:
    """Its verdict as people read it: REGRESSED is what can fail the gate, all else is WORSE.

    So reports hold the word as often as their first line counts it.
    """
    if judgement.verdict == "REGRESSED" and not held(judgement):
        return "WORSE"
    return judgement.verdict


def decides(judgement: Judgement, result: GateResult) -> bool:
    """Whether a judgement makes the exit code other than 0, alone or with others."""
    if not held(judgement):
        return False
    if judgement.verdict == "REGRESSED":
        return not result.advisory
    if judgement.verdict == "INCONCLUSIVE":
        return result.on_inconclusive == "fail" and not result.advisory
    return judgement.verdict in ("ERROR", "INCOMPARABLE")


def outcome(result: GateResult) -> str:
    """The word for the exit code."""
    held_verdicts = {judgement.verdict for judgement in result.judgements if held(judgement)}
    if result.exit_code == 0 and held_verdicts == {"INCONCLUSIVE"}:
        # The job goes on, but nothing passed.
        return "INCONCLUSIVE"
    if result.advisory and result.exit_code == 0:
        return "ADVISORY"
    if result.exit_code == 1 and (
        result.advisory or not any(j.verdict == "REGRESSED" and held(j) for j in result.judgements)
    ):
        # Without data nothing is known to be slower, yet it must not pass.
        return "ERROR"
    return {0: "PASS", 1: "REGRESSED", 3: "INCOMPARABLE", 4: "INCONCLUSIVE", 5: "ERROR"}[
        result.exit_code
    ]


def sides(result: GateResult) -> str:
    """What was compared with what, how often."""
    pairs = max((process.pair + 1 for process in result.processes), default=0)
    measured = f"up to {pairs} pairs" if pairs != 1 else "1 pair"
    if result.tool:
        return f"{result.tool}: {result.head.label} against {result.base.label}"
    return (
        f"{result.head.label} against {result.base.label}, {measured} of processes, "
        f"{duration(result.seconds * 1e9)}"
    )


def rows(judgements: Sequence[Judgement]) -> tuple[VerdictRow, ...]:
    """`judgements` formatted, those that ask for attention first."""
    ordered = sorted(judgements, key=lambda j: (not held(j), ORDER.index(j.verdict)))
    return tuple(row(judgement) for judgement in ordered)


def row(judgement: Judgement) -> VerdictRow:
    """One judgement formatted."""
    return VerdictRow(
        judgement,
        figures=_figures(judgement),
        change=_change(judgement),
        short_change=_short_change(judgement),
        detectable=percent(judgement.smallest_detectable_with_rerun),
    )


def value(figure: float | None, unit: str) -> str:
    """A metric's figure in its unit."""
    if figure is None:
        return "-"
    if unit == "ns":
        return duration(figure, 4)
    if unit == "bytes":
        return byte_count(figure)
    if unit == "bytes/s":
        return byte_rate(figure)
    if not float(figure).is_integer() and abs(figure) < 10:
        return f"{figure:.3f}"
    return count(figure)


def _figures(judgement: Judgement) -> str:
    """Base and head, with one unit where they share it; "" where neither is known."""
    if judgement.base is None and judgement.head is None:
        return ""
    base, head = (value(f, judgement.metric.unit) for f in (judgement.base, judgement.head))
    number, _, unit = base.rpartition(" ")
    if number and head.endswith(f" {unit}"):
        base = number
    return f"{base} → {head}"


def _short_change(judgement: Judgement) -> str:
    if judgement.change is None or judgement.interval is None:
        return _change(judgement)
    low, high = judgement.interval
    return f"{judgement.change:+.1%} ±{(high - low) / 2:.1%}"


def _change(judgement: Judgement) -> str:
    if judgement.change is None:
        return ""
    text = f"{judgement.change:+.1%}"
    if judgement.interval is None:
        return text
    low, high = judgement.interval
    return f"{text} [{low:+.1%}, {high:+.1%}]"


def plain(judgement: Judgement) -> bool:
    """Whether its row in a table says all: nothing is wrong, and no sentence would add to it."""
    return judgement.reason in ("no-change", "below-budget", "faster")


def remark(judgement: Judgement) -> str:
    """The sentence of one judgement."""
    return printable(f"{judgement.benchmark} {judgement.metric.name}: {judgement.message}")


def warnings(result: GateResult) -> tuple[str, ...]:
    """The suite's warnings and those of single judgements, each once."""
    own = [
        f"{judgement.benchmark} {judgement.metric.name}: {warning}"
        for judgement in result.judgements
        for warning in judgement.warnings
    ]
    return tuple(dict.fromkeys((*result.warnings, *own)))


def place(judgement: Judgement, result: GateResult) -> Place | None:
    """The line that launches what made it slower, else where the benchmark stands, or its target.

    Only the largest cause counts, for a count the largest new kernel: a line further down would
    blame the wrong one.
    """
    name = judgement.benchmark
    for explanation in result.explanations:
        if explanation.benchmark == name and judgement.verdict == "REGRESSED":
            is_count = judgement.metric.name in _COUNTS
            source = explanation.source_of_new if is_count else explanation.source
            if source is not None:
                return source
    # "tests/test_a.test_b[3]": the test without its parameters, then the target.
    candidates = (name, name.partition("[")[0], name.partition("/")[0])
    return next((result.places[key] for key in candidates if key in result.places), None)
