"""Two analyses -> what changed: the step, and the kernels that carry the change."""

from collections import Counter
from typing import TypedDict

import msgspec

from gpuprof._version import __version__
from gpuprof.roofline.analysis import NEGLIGIBLE, Analysis
from gpuprof.roofline.comparison.kernel_changes import KernelChange, is_hideable
from gpuprof.roofline.comparison.kinds import KindChange, kind_changes
from gpuprof.roofline.comparison.lines import line_changes
from gpuprof.roofline.comparison.main_cause import main_cause
from gpuprof.roofline.comparison.matching import match_kernels, sides
from gpuprof.roofline.comparison.modules import module_changes
from gpuprof.roofline.comparison.result import (
    ComparedSide,
    Comparison,
    Lengths,
    Quantity,
    StepChange,
    WaitingChange,
)
from gpuprof.roofline.cost_models.cost import FlopKind, Flops
from gpuprof.roofline.doubts import of_timed_steps
from gpuprof.roofline.machine.environment import differences
from gpuprof.roofline.step_figures import WAITING_FOR_THE_HOST, StepSplit

# A change of less than this share of the step is too small for shares of it to mean anything.
_LEAST_CHANGE = 0.005
# Model FLOPs that differ by more are of other work.
_SAME_WORK = 0.01


def compare(base: Analysis, head: Analysis) -> Comparison:
    """What changed from `base` to `head`. Pure; the same analyses give the same comparison."""
    kernels = match_kernels(
        sides(base.kernels, max(base.steps.profiled, 1)),
        sides(head.kernels, max(head.steps.profiled, 1)),
    )
    step = _step_change(base, head, kernels)
    kinds = _kinds(base, head, step)
    lines = line_changes(base, head, same_steps=_are_alike(base.split, head.split))
    found = differences(base.fingerprint, head.fingerprint)
    return Comparison(
        tool_version=__version__,
        base=_side(base),
        head=_side(head),
        step=step,
        main_cause=main_cause(kinds, lines, kernels),
        kinds=kinds,
        lines=lines,
        modules=module_changes(base, head),
        kernels=kernels,
        strict_differences=found.strict,
        advisory_differences=found.advisory,
        notes=_notes(base, head, step),
    )


def _side(analysis: Analysis) -> ComparedSide:
    steps, utilization = analysis.steps, analysis.utilization
    is_counted = analysis.coverage.without_flops <= NEGLIGIBLE
    return ComparedSide(
        title=analysis.title,
        source=analysis.source,
        created_ns=analysis.created_ns,
        device=analysis.device.name if analysis.device else "",
        rank=analysis.rank,
        world_size=analysis.world_size,
        step_ns=steps.median_ns if steps.timed else None,
        relative_spread=steps.relative_spread if steps.timed else None,
        timed=steps.timed,
        profiled=steps.profiled,
        split=analysis.split,
        bottleneck=analysis.bottleneck.kind,
        state=analysis.device_state,
        doubts=of_timed_steps(steps),
        ceilings=analysis.ceilings,
        roof_source=analysis.roof_source,
        flops=_flops(analysis),
        mfu=None if utilization is None else utilization.mfu,
        mfu_peak="" if utilization is None or utilization.peak is None else utilization.peak.label,
        model_flops=utilization.model_flops if utilization is not None and is_counted else None,
        tokens_per_s=steps.tokens_per_s,
        peak_memory_bytes=_peak_memory_bytes(analysis),
    )


def _peak_memory_bytes(analysis: Analysis) -> int | None:
    if analysis.memory is None:
        return None
    peaks = [device.run_peak_allocated_bytes for device in analysis.memory.devices]
    return max((peak for peak in peaks if peak is not None), default=None)


def _flops(analysis: Analysis) -> tuple[Flops, ...]:
    counts: Counter[tuple[FlopKind, str]] = Counter()
    for kernel in analysis.kernels:
        for part in kernel.flops or ():
            counts[part.kind, part.precision] += part.count
    steps = max(analysis.steps.profiled, 1)
    return tuple(Flops(*key, count // steps) for key, count in counts.most_common() if count)


def _step_change(
    base: Analysis, head: Analysis, kernels: tuple[KernelChange, ...]
) -> StepChange | None:
    """The change of a step, of the same kind of step on both sides."""
    if not base.kernels and not head.kernels:
        return None
    before, after = base.split, head.split
    timed = before is not None and after is not None and before.basis == after.basis == "timed"
    whole = [one is not None and one.basis == "whole trace" for one in (before, after)]
    base_ns, head_ns = _length(base, timed=timed), _length(head, timed=timed)
    if base_ns is None or head_ns is None or any(whole) != all(whole):
        return _device_time_change(base, head, kernels)
    profiled: Quantity = "whole trace" if all(whole) else "profiled step time"
    communication = copies = None
    if base.exposed is not None and head.exposed is not None:
        communication = float(head.exposed.communication_ns - base.exposed.communication_ns)
        copies = float(head.exposed.copies_ns - base.exposed.copies_ns)
        kernels = tuple(change for change in kernels if not is_hideable(change))
    idle = [max(0, base_ns - _busy(base)), max(0, head_ns - _busy(head))]
    return _with_rest(
        StepChange(
            lengths=Lengths("step time" if timed else profiled, base_ns, head_ns),
            **_by_match(kernels),
            communication_ns=communication,
            copies_ns=copies,
            idle_ns=float(idle[1] - idle[0]),
            idle_name=_idle_name(after),
            waiting=_waiting(before, after),
            unexplained_ns=0.0,
            unexplained_share=None,
        )
    )


def _kinds(base: Analysis, head: Analysis, step: StepChange | None) -> tuple[KindChange, ...]:
    """The parts of the steps that `step` compares; () where there is no step, but device time."""
    if step is None or step.idle_ns is None:
        return ()
    lengths = step.lengths
    return kind_changes(
        base, head, base_ns=lengths.base_ns, head_ns=lengths.head_ns, idle_name=step.idle_name
    )


def _are_alike(before: StepSplit | None, after: StepSplit | None) -> bool:
    """Whether two splits are of steps of one definition."""
    return before is not None and after is not None and before.basis == after.basis


def _length(analysis: Analysis, *, timed: bool) -> int | None:
    """The step that the parts add up to: a timed one, or a profiled one."""
    if analysis.split is None:
        return None
    if timed or analysis.split.basis != "timed":
        return analysis.split.step_ns
    profiled = analysis.steps.profiled_mean_ns
    return None if profiled is None else max(profiled, _busy(analysis))


def _idle_name(split: StepSplit | None) -> str:
    """The time without device work, in words."""
    return WAITING_FOR_THE_HOST if split is None else split.idle_name


def _waiting(before: StepSplit | None, after: StepSplit | None) -> tuple[WaitingChange, ...]:
    """The change of each cause of waiting, where the two steps are of one definition."""
    if before is None or after is None or not _are_alike(before, after):
        return ()
    kinds = {part.kind for split in (before, after) for part in split.idle_parts}
    changes = [
        WaitingChange(kind, float(after.nanoseconds(kind) - before.nanoseconds(kind)))
        for kind in sorted(kinds)
    ]
    found = [one for one in changes if one.change_ns]
    return tuple(sorted(found, key=lambda one: -abs(one.change_ns)))


def _busy(analysis: Analysis) -> int:
    """Time of one profiled step with any device work. An analysis of an older gpuprof clips it."""
    if analysis.exposed is not None:
        return analysis.exposed.busy_ns
    return 0 if analysis.split is None else analysis.split.busy_ns


def _device_time_change(
    base: Analysis, head: Analysis, kernels: tuple[KernelChange, ...]
) -> StepChange:
    """Without steps: the device time of all work, of one step where its number is known."""
    lengths = [
        round(sum(point.device_ns for point in analysis.kernels) / max(analysis.steps.profiled, 1))
        for analysis in (base, head)
    ]
    return _with_rest(
        StepChange(
            lengths=Lengths("device time", lengths[0], lengths[1]),
            **_by_match(kernels),
            communication_ns=None,
            copies_ns=None,
            idle_ns=None,
            idle_name=_idle_name(None),
            unexplained_ns=0.0,
            unexplained_share=None,
        )
    )


class _ByMatch(TypedDict):
    matched_ns: float
    new_ns: float
    removed_ns: float


def _by_match(kernels: tuple[KernelChange, ...]) -> _ByMatch:
    new = sum(change.change_ns for change in kernels if change.match == "new")
    removed = sum(change.change_ns for change in kernels if change.match == "removed")
    every = sum(change.change_ns for change in kernels)
    return {"matched_ns": every - new - removed, "new_ns": new, "removed_ns": removed}


def _with_rest(step: StepChange) -> StepChange:
    """`step` with what its parts leave unexplained."""
    parts = (
        step.matched_ns,
        step.new_ns,
        step.removed_ns,
        step.communication_ns or 0.0,
        step.copies_ns or 0.0,
        step.idle_ns or 0.0,
    )
    unexplained = step.change_ns - sum(parts)
    large = abs(step.change_ns) >= _LEAST_CHANGE * max(step.lengths.base_ns, 1)
    return msgspec.structs.replace(
        step,
        unexplained_ns=unexplained,
        unexplained_share=abs(unexplained / step.change_ns) if large else None,
    )


def _definitions(base: Analysis, head: Analysis) -> str:
    """What a profiled step is on the two sides, in brackets; "" where a side has timed ones too."""
    bases = [one.split.basis for one in (base, head) if one.split is not None]
    if "timed" in bases or not bases:
        return ""
    if len(set(bases)) == 1:
        return f" ({bases[0]})"
    return f" ({bases[0]} in the base, {bases[1]} in the head)"


def _other_passes(base: Analysis, head: Analysis) -> list[str]:
    """A sentence where a step of one side has other numbers of backward passes."""
    before, after = (
        None if one.steps.content is None else one.steps.content.backward_passes
        for one in (base, head)
    )
    if before is None or after is None or before == after:
        return []
    told = [" to ".join(map(str, sorted(set(counts)))) for counts in (before, after)]
    return [f"backward passes in a step: {told[0]} in the base, {told[1]} in the head"]


def _unequal_work(base: Analysis, head: Analysis) -> list[str]:
    """A sentence where a step of one side has other products than one of the other."""
    flops = [_side(one).model_flops for one in (base, head)]
    before, after = flops
    if not before or not after or abs(after / before - 1) <= _SAME_WORK:
        return []
    return [
        f"a step of the head has {after / before:.3g} times the model FLOPs of one of the base: "
        "the two do other work"
    ]


def _notes(base: Analysis, head: Analysis, step: StepChange | None) -> tuple[str, ...]:
    notes = []
    if step is None:
        notes.append("neither capture holds device work, so there is nothing to compare")
    elif step.lengths.quantity == "device time":
        notes.append(
            "not both captures have a step with device work: device time is compared, and what "
            "idle time did is unknown"
        )
    elif step.lengths.quantity == "whole trace":
        notes.append(
            "nothing marks steps: all that the two traces recorded is compared, from the first to "
            "the last device work"
        )
    elif step.lengths.quantity == "profiled step time":
        notes.append(
            f"the parts are those of profiled steps{_definitions(base, head)}: the profiler "
            "lengthens operators on a CPU and steps that wait for the host"
        )
    for name, one in (("base", base), ("head", head)):
        notes += [f"in the {name} {doubt}" for doubt in of_timed_steps(one.steps)]
    notes += _other_passes(base, head)
    notes += _unequal_work(base, head)
    clocks = [
        None if one.device_state is None else one.device_state.sm_clock_mhz_median
        for one in (base, head)
    ]
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1) > 0.02:
        notes.append(
            f"the device ran at {clocks[0]} MHz in the base and {clocks[1]} MHz in the head "
            f"({clocks[1] / clocks[0] - 1:+.1%})"
        )
    for name, one in (("base", base), ("head", head)):
        if one.device_state is not None and one.device_state.throttle_reasons:
            reasons = ", ".join(one.device_state.throttle_reasons)
            notes.append(f"the device was slowed down in the {name}: {reasons}")
    if base.world_size != head.world_size:
        notes.append(f"the base has {base.world_size} ranks and the head {head.world_size}")
    for name, one, other in (("base", base, head), ("head", head, base)):
        alone = sorted(set(one.plugins) - set(other.plugins))
        if alone:
            said = ", ".join(f"{use.distribution} ({use.adds} {use.of})" for use in alone)
            notes.append(f"plug-ins had a part in the {name} alone: {said}")
    return tuple(notes)
