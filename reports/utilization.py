"""MFU, HFU, MBU and the closed form, as labelled sentences."""

from dataclasses import replace

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact
from gpuprof.reports.computed.of_utilization import of_flop_utilization, of_memory_utilization
from gpuprof.reports.figures import OVER_PEAK, is_over_peak
from gpuprof.reports.step_unit import step_unit
from gpuprof.roofline.analysis import NEGLIGIBLE, Analysis, Utilization
from gpuprof.roofline.closed_form_figures import ClosedForm
from gpuprof.roofline.machine.ceilings import Ceiling

# Of the device time: where more of it is not counted, a lower bound says nothing.
_HALF = 0.5
# How many differences of the closed form a report names.
_REASONS = 4


def _in_graphs(analysis: Analysis, of_what: str = "") -> str:
    """How much of the device time is of graphs whose operators are unknown; "" where little is."""
    unknown_ns = sum(graph.device_ns - graph.with_op_ns for graph in analysis.graphs)
    share = unknown_ns / analysis.coverage.device_ns if analysis.coverage.device_ns else 0.0
    if share < NEGLIGIBLE:
        return ""
    share_text = f"{formatting.percent(share)}{of_what}"
    return f": {share_text} is of CUDA graphs whose operators are unknown"


def is_mostly_counted(analysis: Analysis) -> bool:
    """Whether enough of the device time has a FLOP model for shares of a peak to say anything."""
    return analysis.coverage.without_flops <= _HALF


def utilization_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """MFU, HFU and MBU, each with its peak and the convention it follows."""
    utilization = analysis.utilization
    if utilization is None:
        known = analysis.steps.length_ns
        graphs = _in_graphs(analysis, " of device time")
        why = f"no matmul was counted{graphs}" if known else "no step was seen"
        if analysis.source == "ncu":
            why = "there is no step: Nsight Compute ran each kernel alone"
        lost = analysis.coverage.lost_launches
        if lost:
            why = f"{lost} of {analysis.coverage.launches} launches have no device work recorded"
        return (Fact("MFU", formatting.UNKNOWN, why),)
    uncounted = analysis.coverage.without_flops
    missing = formatting.percent(uncounted)
    if not is_mostly_counted(analysis):
        why = f"{missing} of device time has no FLOP model{_in_graphs(analysis)}"
        return (Fact("MFU", formatting.UNKNOWN, why),)
    reached = formatting.flops_rate(utilization.flops_per_s)
    content = analysis.steps.content
    unit = "" if content is None else f", per {step_unit(content)}"
    rows = []
    if utilization.peak is None or utilization.mfu is None:
        why = f"{reached}{unit}; no {utilization.precision} peak is known for this device"
        rows.append(Fact("MFU", formatting.UNKNOWN, why))
    else:
        rows += _flop_utilization_facts(
            utilization, utilization.mfu, utilization.peak, reached, unit
        )
    if utilization.weight_bytes and utilization.mbu is not None and utilization.memory_peak:
        rows.append(_memory_utilization_fact(utilization, utilization.memory_peak))
    if utilization.basis != "timed":
        rows = [_under_the_profiler(fact, utilization) for fact in rows]
    if uncounted > NEGLIGIBLE:
        rows = [_lower_bound(fact, missing) for fact in rows]
    return tuple(rows)


def _under_the_profiler(fact: Fact, utilization: Utilization) -> Fact:
    """`fact` as what it is where no step without the profiler did the same work."""
    note = "of the profiled steps alone, in the time they took under the profiler"
    if utilization.basis == "whole trace":
        note = "of the whole trace, in the time from its first to its last device work"
    return replace(fact, note=f"{fact.note}; {note}")


def _lower_bound(fact: Fact, missing: str) -> Fact:
    """`fact` as what it is where some device time has no model."""
    value = fact.value if fact.value == formatting.UNKNOWN else f"at least {fact.value}"
    note = f"{fact.note}; without the {missing} of device time that has no FLOP model"
    return replace(fact, value=value, note=note)


def headline_fact(analysis: Analysis) -> Fact:
    """The utilization that tells most: MBU where a step is nearer to it, as in decoding."""
    utilization = analysis.utilization
    rows = utilization_facts(analysis)
    if utilization is not None and (utilization.mbu or 0.0) > (utilization.mfu or 0.0):
        return next((fact for fact in rows if fact.label == "MBU"), rows[0])
    return rows[0]


def _flop_utilization_facts(
    utilization: Utilization, mfu: float, peak: Ceiling, reached: str, unit: str
) -> list[Fact]:
    note = f"{reached} of {formatting.flops_rate(peak.rate)} {peak.label}{unit}"
    if utilization.devices > 1:
        note += f", of each of {utilization.devices} devices"
    if utilization.optimizer_flops:
        note += f"; without {formatting.flops(utilization.optimizer_flops)} of the optimizer"
    if utilization.model_flops_causal != utilization.model_flops:
        note += "; causal attention in full"
    of_full = of_flop_utilization("MFU", utilization, utilization.model_flops, peak, mfu)
    rows = [Fact("MFU", formatting.percent(mfu), _flagged(note, mfu), computed=of_full)]
    if utilization.mfu_other_peak is not None and utilization.other_peak is not None:
        other = utilization.other_peak
        of_other = (
            f"all products compared with {formatting.flops_rate(other.rate)} {other.label}; "
            "products in narrower types may exceed it"
            if other.precision == "bf16"
            else f"all products compared with {formatting.flops_rate(other.rate)} {other.label}"
        )
        share = utilization.mfu_other_peak
        computed = of_flop_utilization("MFU", utilization, utilization.model_flops, other, share)
        label, value = f"MFU, {other.precision} peak", formatting.percent(share)
        rows.append(Fact(label, value, of_other, computed=computed))
    if utilization.mfu_causal is not None and utilization.mfu_causal != mfu:
        share = utilization.mfu_causal
        kept = utilization.model_flops_causal
        computed = of_flop_utilization("MFU, causal", utilization, kept, peak, share)
        note = "attention counted by the pairs its mask keeps"
        rows.append(Fact("MFU, causal", formatting.percent(share), note, computed=computed))
    if utilization.hfu is not None and utilization.hardware_flops != utilization.model_flops:
        share, executed = utilization.hfu, utilization.hardware_flops or 0
        note = _flagged(_computed_again(utilization), share)
        computed = of_flop_utilization("HFU", utilization, executed, peak, share)
        rows.append(Fact("HFU", formatting.percent(share), note, computed=computed))
    return rows


def _flagged(note: str, fraction: float) -> str:
    return f"{note}; {OVER_PEAK}" if is_over_peak(fraction) else note


def _computed_again(utilization: Utilization) -> str:
    """What HFU counts and MFU does not."""
    again = (utilization.hardware_flops or 0) - utilization.model_flops
    scores = again - utilization.checkpointed_flops
    parts = [
        f"{formatting.flops(count)} of {what}"
        for count, what in (
            (utilization.checkpointed_flops, "checkpointed activations"),
            (scores, "attention scores"),
        )
        if count
    ]
    note = f"including recomputation: {' and '.join(parts)}"
    if utilization.hfu_causal is None or utilization.hfu_causal == utilization.hfu:
        return note
    return f"{note}; causal {formatting.percent(utilization.hfu_causal)}"


def _memory_utilization_fact(utilization: Utilization, peak: Ceiling) -> Fact:
    read = f"{formatting.byte_count(utilization.weight_bytes)} of weights"
    if utilization.key_value_bytes:
        read += f" and {formatting.byte_count(utilization.key_value_bytes)} of keys and values"
    note = f"{read} a step, of {formatting.byte_rate(peak.rate)} {peak.label}"
    mbu = utilization.mbu or 0.0
    computed = of_memory_utilization(utilization, peak)
    return Fact("MBU", formatting.percent(mbu), _flagged(note, mbu), computed=computed)


def closed_form_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """The closed form, where the model's parameters are known."""
    return () if analysis.closed_form is None else (closed_form_fact(analysis.closed_form),)


def closed_form_fact(closed: ClosedForm) -> Fact:
    """The closed form beside the count by operators, and why the two differ."""
    reasons = [
        f"{signed_flops(difference.flops)} {difference.reason}"
        for difference in sorted(closed.differences, key=lambda one: -abs(one.flops))
    ]
    if len(reasons) > _REASONS:
        reasons[_REASONS:] = [f"{len(reasons) - _REASONS} smaller differences"]
    if closed.unexplained:
        reasons.append(f"{signed_flops(closed.unexplained)} not explained")
    note = (
        f"a step by {closed.formula}, N {formatting.quantity(closed.parameters, '').strip()}, "
        f"D {formatting.count(closed.tokens)}; operators count "
        f"{formatting.quantity(closed.counted, 'FLOP', digits=4)}"
    )
    return Fact(
        "Closed form",
        formatting.quantity(closed.flops, "FLOP", digits=4),
        f"{note}: {'; '.join(reasons)}" if reasons else f"{note}, the same",
    )


def signed_flops(count: int) -> str:
    """A difference of FLOPs: "-537 GFLOP"."""
    return f"{'-' if count < 0 else '+'}{formatting.flops(abs(count))}"
