"""How the lengths of all steps are spread, and what differed in the slowest."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Paragraph, RunPlot, Table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.slow_step_figures import SlowStep, SlowSteps

_COLUMNS = (
    Column("Step", "number"),
    Column("Took", "number"),
    Column("Longer by", "number"),
    Column("What differed"),
)
_CLOCK_COLUMNS = (
    Column("SM clock", "number"),
    Column("Power", "number"),
    Column("Slowed down by"),
)
_MOST_ROWS = 12
_OF = {
    "timed": "timed steps",
    "watched": "steps after the profiled ones",
    "profiled": "profiled steps",
}
# Causes in one line, the largest first.
_NAMED = 3
# Of the time of all steps: where it is not asked for, less is not worth a line.
_WORTH_A_LINE = 0.02


def _distribution(slow: SlowSteps) -> Fact:
    named = [f"P{each.fraction * 100:.0f} {_time(each.length_ns)}" for each in slow.percentiles]
    steps = f"{formatting.count(slow.steps)} {_OF[slow.population]}"
    note = f"longest {_time(slow.longest_ns)}; {steps}"
    if slow.steps_per_mark > 1:
        note += f", means of {slow.steps_per_mark} each"
    return Fact("Step times", ", ".join(named), f"{note}, {slow.clock}")


def _outliers(slow: SlowSteps) -> Fact:
    if not slow.outliers:
        note = f"none took more than {_time(slow.limit_ns)}"
        return Fact("Slow steps", "0", note)
    share = formatting.percent(slow.outliers / slow.steps)
    total = formatting.percent(slow.outliers_longer_ns / (slow.mean_ns * slow.steps))
    notes = [f"{share} of them took more than {_time(slow.limit_ns)} and lost {total} of the time"]
    if slow.causes:
        notes.append(_causes(slow))
    return Fact("Slow steps", formatting.count(slow.outliers), ": ".join(notes))


def _causes(slow: SlowSteps) -> str:
    """The causes of the outliers in full detail, as shares of what these were longer by."""
    longer_ns = sum(step.longer_ns for step in slow.slowest if step.length_ns > slow.limit_ns)
    return ", ".join(
        f"{cause.cause} {formatting.percent(cause.longer_ns / longer_ns)}"
        f"{'' if cause.every is None else f' (every {cause.every} steps)'}"
        for cause in slow.causes[:_NAMED]
    )


def _mfu(slow: SlowSteps) -> tuple[Fact, ...]:
    if slow.mfu is None or slow.population != "watched":
        return ()
    note = "of all these steps together, if each does the work of a profiled one"
    return (Fact("MFU, run", formatting.percent(slow.mfu), note),)


def _cost(slow: SlowSteps) -> tuple[Fact, ...]:
    if slow.watching_fraction is None:
        return ()
    note = "of the host's time, by the marks' own clock"
    return (Fact("Watching", formatting.percent(slow.watching_fraction), note),)


def _summary(analysis: Analysis) -> Sequence[Block]:
    slow = analysis.slow_steps
    if slow is None:
        return ()
    if slow.population == "watched":
        return (Facts((_distribution(slow), _outliers(slow), *_mfu(slow))),)
    lost = slow.outliers_longer_ns / (slow.mean_ns * slow.steps) if slow.mean_ns else 0.0
    return (Facts((_outliers(slow),)),) if lost >= _WORTH_A_LINE else ()


def _body(analysis: Analysis) -> Sequence[Block]:
    slow = analysis.slow_steps
    if slow is None:
        return ()
    facts = Facts((_distribution(slow), _outliers(slow), *_mfu(slow), *_cost(slow)))
    shown = [step for step in slow.slowest if step.length_ns > slow.limit_ns][:_MOST_ROWS]
    blocks: list[Block] = [facts]
    if slow.time_line:
        blocks.append(RunPlot(slow))
    if shown:
        blocks.append(_table(shown))
        blocks.append(Paragraph(_how_compared(slow), "note"))
    return tuple(blocks)


def _table(steps: Sequence[SlowStep]) -> Table:
    sampled = any(step.sm_clock_mhz is not None for step in steps)
    rows = [(*_cells(step), *(_clock_cells(step) if sampled else ())) for step in steps]
    return Table((*_COLUMNS, *(_CLOCK_COLUMNS if sampled else ())), tuple(rows))


def _cells(step: SlowStep) -> tuple[str, ...]:
    parts = [
        f"{part.cause} {formatting.duration(part.longer_ns)}"
        f"{f' ({part.evidence})' if part.evidence else ''}"
        for part in step.differences
    ]
    return (
        formatting.count(step.index),
        _time(step.length_ns),
        formatting.duration(step.longer_ns),
        ", ".join(parts) or formatting.UNKNOWN,
    )


def _clock_cells(step: SlowStep) -> tuple[str, ...]:
    clock, reasons = step.sm_clock_mhz, step.slowed_by
    return (
        formatting.UNKNOWN if clock is None else f"{clock} MHz",
        formatting.UNKNOWN if step.power_watts is None else f"{step.power_watts:.0f} W",
        formatting.UNKNOWN if reasons is None else ", ".join(reasons) or "nothing",
    )


def _how_compared(slow: SlowSteps) -> str:
    if slow.population == "profiled":
        return "Compared with the median of the profiled steps, which the profiler lengthens."
    said = "Compared with the median step. "
    if slow.population == "watched":
        said = (
            "Steps are numbered from the first that was watched. Compared with the medians of a "
            "sample of all. "
        )
    return (
        f"{said}Blocked is time in which the thread neither ran nor waited for a core: in a lock, "
        "in a read of a file, asleep, or while a virtual machine had no core. The clock is that of "
        "the nearest sample."
    )


def _time(nanoseconds: int) -> str:
    return formatting.step_duration(nanoseconds)


SECTION = Section(
    key="slow-steps",
    title=titled("Slow steps"),
    fields=("slow_steps",),
    summary=_summary,
    body=_body,
)
