"""How long a step took, how well it used the device, and where its time went."""

from collections.abc import Sequence
from itertools import accumulate

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Columns,
    ComputedFigure,
    ComputedFigures,
    Fact,
    Facts,
    Ladder,
    Paragraph,
    Rung,
    StepPlot,
)
from gpuprof.reports.computed.of_step import of_part, of_profiler_stretch, of_step_time
from gpuprof.reports.energy import energy_facts
from gpuprof.reports.figures import verdict_sentence
from gpuprof.reports.sections.roof import ceiling_fact
from gpuprof.reports.sections.section import Section, titled
from gpuprof.reports.step_unit import is_usual, sentence
from gpuprof.reports.utilization import closed_form_facts, utilization_facts
from gpuprof.roofline.analysis import Analysis, DeviceState
from gpuprof.roofline.classes import (
    AT_ROOF,
    COMMUNICATION,
    COPY,
    OTHER_DEVICE,
    OTHER_RANK,
    UNKNOWN,
    BottleneckClass,
    bottleneck_class,
)
from gpuprof.roofline.step_figures import DEVICE_CLOCK, StepSplit, StepTimes
from gpuprof.roofline.steps.waiting_for_a_core import is_much

# Clocks closer than this are the same for a step's length.
_SAME_CLOCK = 0.01


def rungs(analysis: Analysis, split: StepSplit) -> tuple[Rung, ...]:
    """The parts of `split` in the order of their classes; they add up to the step."""
    whole_ns = split.step_ns or 1
    ends_ns = accumulate(part.nanoseconds for part in split.parts)
    return tuple(
        Rung(
            bottleneck_class(part.kind),
            part.nanoseconds,
            part.nanoseconds / whole_ns,
            (end_ns - part.nanoseconds) / whole_ns,
            _explained_in(bottleneck_class(part.kind), analysis),
        )
        for part, end_ns in zip(split.parts, ends_ns, strict=True)
    )


def _explained_in(row: BottleneckClass, analysis: Analysis) -> str:
    """The key of the section that says what a part of a step is made of."""
    if row.idle:
        return "" if row.name == OTHER_DEVICE else "idle"
    of_work = "ops" if analysis.ops else "kernels"
    return {
        AT_ROOF: "roofline",
        UNKNOWN: "coverage",
        COMMUNICATION: "transfers",
        COPY: "transfers",
        OTHER_RANK: "waited-for",
    }.get(row.name, of_work)


def split_basis(split: StepSplit) -> str:
    """What the split's times were taken from."""
    if split.basis == "timed":
        return "device work of the profiled steps, inside the step time without the profiler"
    if split.basis == "whole trace":
        return "all that the trace holds, from the first to the last device work"
    return f"from the profiled steps by {split.basis}, which the profiler lengthens"


def definition(steps: StepTimes) -> str:
    """What the step time is, and by which clock."""
    what = {
        "timed": f"timed without the profiler, {steps.clock}",
        "device period": "device period under the profiler",
        "host range": "host range under the profiler",
        "whole trace": "whole trace: nothing marks steps",
    }
    return steps.clock if steps.definition is None else what[steps.definition]


def length_facts(steps: StepTimes) -> tuple[Fact, ...]:
    """How long a step took, and the tokens a second that follow from it."""
    if steps.tokens_per_s is None:
        return (step_time_fact(steps),)
    speed = formatting.quantity(steps.tokens_per_s, "tokens/s")
    note = "of this rank, as the program declared its tokens"
    return step_time_fact(steps), Fact("Throughput", speed, note)


def timing_facts(steps: StepTimes, state: DeviceState | None) -> tuple[Fact, ...]:
    """How steps were found, their length by other clocks and later, what the profiler added."""
    facts = [Fact("Steps", steps.found_by or formatting.UNKNOWN, schedule_text(steps))]
    if steps.host_median_ns is not None and steps.clock == DEVICE_CLOCK:
        facts.append(
            Fact("Host clock", formatting.step_duration(steps.host_median_ns), "same steps")
        )
    if steps.launches_per_step is not None:
        facts.append(Fact("Launches", f"{formatting.count(steps.launches_per_step)} a step"))
    if steps.later_median_ns is not None:
        facts.append(later_fact(steps, steps.later_median_ns))
    facts.append(stretch_fact(steps, state))
    return tuple(facts)


def device_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """How each of several devices spends a step."""
    step_ns = None if analysis.split is None else analysis.split.step_ns
    found = []
    if step_ns and len(analysis.devices) > 1 and analysis.exposed is not None:
        for use in analysis.devices:
            chosen = use.device == analysis.exposed.device
            note = (
                f"{formatting.duration(use.computing_ns)} computing, "
                f"{formatting.duration(use.communication_ns)} exposed communication, "
                f"{formatting.duration(use.copies_ns)} exposed copies"
            )
            if chosen:
                note += "; it works longest: the split is of its step"
            busy = f"{formatting.percent(use.busy_ns / step_ns)} busy"
            found.append(Fact(f"Device {use.device}", busy, note))
    return tuple(found)


def later_fact(steps: StepTimes, later_median_ns: int) -> Fact:
    """How long steps took after the profiled ones, beside the timed ones."""
    number = formatting.counted(steps.later, "step")
    note = f"median of {number} after the profiled ones, {steps.later_clock}"
    if steps.timed and steps.median_ns:
        change = later_median_ns / steps.median_ns - 1
        note = f"{change:+.1%}; {note}"
    return Fact("Later steps", formatting.step_duration(later_median_ns), note)


def schedule_text(steps: StepTimes) -> str:
    """How many steps of each phase there were, and what one is where that is not usual."""
    phases = f"{steps.warmup} warm-up, {steps.timed} timed, {steps.profiled} profiled"
    if steps.content is None or is_usual(steps.content):
        return phases
    return f"{phases}; {sentence(steps.content)}"


def step_time_fact(steps: StepTimes) -> Fact:
    """The step time with its definition; its range and spread where there are several."""
    if steps.length_ns is None:
        return Fact("Step time", formatting.UNKNOWN, "no complete step was seen")
    number = steps.timed or len(steps.samples_ns)
    average = "median" if steps.timed else "mean"
    notes = [f"{average} of {number}" if number > 1 else "one step"]
    if steps.definition == "whole trace":
        notes = []
    if number > 1 and steps.minimum_ns is not None and steps.maximum_ns is not None:
        shortest = formatting.step_duration(steps.minimum_ns)
        notes.append(f"{shortest} to {formatting.step_duration(steps.maximum_ns)}")
    if number > 1 and steps.relative_spread is not None:
        notes.append(f"interquartile range {formatting.percent(steps.relative_spread)}")
    notes.append(definition(steps))
    if is_much(steps.waiting_fraction):
        share = formatting.percent(steps.waiting_fraction)
        notes.append(f"{share} of it waiting for a core that other programs had")
    value = formatting.step_duration(steps.length_ns)
    return Fact("Step time", value, ", ".join(notes), computed=of_step_time(steps))


def stretch_fact(steps: StepTimes, state: DeviceState | None) -> Fact:
    """What the profiler added to a step; with both clocks where they differed."""
    if steps.profiler_stretch is None:
        why = "no step was timed without it" if not steps.timed else "no step was profiled"
        return Fact("Profiler", formatting.UNKNOWN, f"its cost is unknown: {why}")
    stretch = steps.profiler_stretch
    if _is_the_others_doing(steps, stretch):
        note = "other programs had the core for as much of the steps as they differ by"
        return Fact("Profiler", formatting.UNKNOWN, f"its cost is unknown: {note}")
    if stretch < 0:
        return Fact("Profiler", "no cost seen", "profiled steps were not slower than timed ones")
    profiled = formatting.step_duration(steps.profiled_median_ns)
    note = f"a profiled step takes {profiled}{_other_clock(state)}"
    value = f"+{formatting.percent(stretch)}"
    return Fact("Profiler", value, note, computed=of_profiler_stretch(steps))


def _is_the_others_doing(steps: StepTimes, stretch: float) -> bool:
    """Whether waiting for a core may be half of what timed and profiled steps differ by."""
    waiting = max(steps.waiting_fraction or 0.0, steps.profiled_waiting_fraction or 0.0)
    return steps.clock != DEVICE_CLOCK and is_much(waiting) and waiting >= abs(stretch) / 2


def _other_clock(state: DeviceState | None) -> str:
    timed = None if state is None else state.sm_clock_mhz_median
    profiled = None if state is None else state.profiled_sm_clock_mhz_median
    if not timed or not profiled or abs(profiled / timed - 1) <= _SAME_CLOCK:
        return ""
    return f", at {profiled} MHz; the timed steps ran at {timed} MHz"


def _summary(analysis: Analysis) -> Sequence[Block]:
    facts = (
        *length_facts(analysis.steps),
        *device_facts(analysis),
        *utilization_facts(analysis),
        _loss_fact(analysis),
    )
    return (Facts(facts), *_ladder(analysis))


def _loss_fact(analysis: Analysis) -> Fact:
    """The largest loss; what it could gain only where no advice says the same."""
    verdict = analysis.bottleneck
    advised = any(advice.gain_ns == verdict.gain_ns for advice in analysis.advice)
    evidence = formatting.sentence(verdict.evidence) if advised else verdict_sentence(analysis)
    return Fact("Largest loss", verdict.kind, evidence, kind=verdict.kind)


def _basis(analysis: Analysis) -> Sequence[Block]:
    facts = (
        *timing_facts(analysis.steps, analysis.device_state),
        *energy_facts(analysis),
        *closed_form_facts(analysis),
        ceiling_fact(analysis),
    )
    return (Facts(facts),)


def _ladder(analysis: Analysis) -> tuple[Block, ...]:
    split = analysis.split
    if split is None:
        return ()
    taken = tuple(rung for rung in rungs(analysis, split) if rung.nanoseconds)
    return (Ladder(taken, split.step_ns, split.whole, split_basis(split)),)


def _computed(analysis: Analysis) -> tuple[Block, ...]:
    """How parts of the ladder were measured that are no work of operators."""
    split = analysis.split
    if split is None:
        return ()
    figures = tuple(
        ComputedFigure(
            bottleneck_class(part.kind).part, formatting.duration(part.nanoseconds), computed
        )
        for part in split.parts
        if (computed := of_part(analysis, split, part.kind)) is not None
    )
    return (ComputedFigures("How exposed time is computed", figures),) if figures else ()


def _body(analysis: Analysis) -> Sequence[Block]:
    steps = analysis.steps
    facts = Facts(
        (
            *length_facts(steps),
            *device_facts(analysis),
            *utilization_facts(analysis),
            *closed_form_facts(analysis),
            *timing_facts(steps, analysis.device_state),
            *energy_facts(analysis),
        )
    )
    plotted = formatting.counted(len(steps.samples_ns), "timed step" if steps.timed else "step")
    plot = StepPlot(steps, f"{plotted}, the first at the top ({definition(steps)})")
    if analysis.split is None:
        absent = Paragraph(f"The step cannot be split: {_why(analysis)}.", "absent")
        return (absent, Columns(((facts,), (plot,))))
    return (*_ladder(analysis), *_computed(analysis), Columns(((facts,), (plot,))))


def _why(analysis: Analysis) -> str:
    if analysis.steps.length_ns is None:
        return "no complete step was seen"
    if analysis.roof_source is None:
        return "no ceiling is known for this device"
    return "no step was profiled"


SECTION = Section(
    key="step",
    title=titled("Where a step's time goes"),
    of_work=True,
    fields=("steps", "split", "exposed", "devices", "utilization", "closed_form", "energy"),
    summary=_summary,
    basis=_basis,
    body=_body,
)
