"""The ceilings that percentages are taken of, in words."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.machine.ceilings import Ceiling, at_clock


def roof_sentence(analysis: Analysis) -> str:
    """Which ceilings the percentages are taken against."""
    if analysis.roof_source is None and _by_own_peaks(analysis):
        return (
            "Percentages of the roof are Nsight Compute's Speed of Light: of the peak of the unit "
            "that a kernel kept busiest."
        )
    if analysis.roof_source is None:
        return (
            "No ceiling is known for this device, so there are no percentages of a roof; "
            "gpuprof calibrate measures them."
        )
    if analysis.roof_source == "counters":
        return (
            "Percentages of the roof are of the dense peaks of Nsight Compute's counters, at the "
            "clocks that it saw."
        )
    if analysis.roof_source == "datasheet":
        clock = ", at the SM clock that Nsight Compute saw" if analysis.source == "ncu" else ""
        return f"Percentages of the roof are of the datasheet's dense peaks{clock}."
    return "Percentages of the roof are of the rates measured on this device by gpuprof calibrate."


def _by_own_peaks(analysis: Analysis) -> bool:
    """Whether shares of peaks are known though the peaks are not."""
    return any(kernel.roof_fraction is not None for kernel in analysis.kernels)


def ceiling_fact(analysis: Analysis) -> Fact:
    """The ceilings that bind this work, the largest part of it first, and their origin."""
    if analysis.roof_source is None:
        why = "none is known for this device"
        if _by_own_peaks(analysis):
            why += "; each kernel is compared with the peaks of its own counters"
        return Fact("Ceilings", formatting.UNKNOWN, why)
    binding = dict.fromkeys(op.roof for op in analysis.ops if op.roof)
    ceilings = [
        ceiling
        for label in binding
        for ceiling in analysis.ceilings
        if ceiling.label == label and ceiling.source == analysis.roof_source
    ]
    if not ceilings:
        return Fact("Ceilings", formatting.UNKNOWN, "no work has a model that one could bind")
    value = ", ".join(map(_rate, ceilings[:3]))
    if analysis.roof_source == "measured":
        conditions = dict.fromkeys(each.conditions for each in ceilings[:3] if each.conditions)
        notes = ["measured here by gpuprof calibrate", *conditions]
        return Fact("Ceilings", value, "; ".join(notes))
    if analysis.roof_source == "counters":
        origin = "dense; peaks of Nsight Compute's counters, at the clocks that it saw"
        return Fact("Ceilings", value, origin)
    origins = ", ".join(dict.fromkeys(ceiling.reference for ceiling in ceilings[:3]))
    notes = ["dense", *_at_seen_clock(analysis, ceilings[:3]), origins]
    return Fact("Ceilings", value, "; ".join(notes))


def _rate(ceiling: Ceiling) -> str:
    """ "189 GFLOP/s fp32 vector", of a measured one with its spread."""
    if ceiling.kind == "compute":
        rate = f"{formatting.flops_rate(ceiling.rate)} {ceiling.precision} {ceiling.unit}"
    else:
        rate = f"{formatting.byte_rate(ceiling.rate)} {ceiling.level}"
    spread = "" if ceiling.spread is None else f" (spread {formatting.percent(ceiling.spread)})"
    return f"{rate}{spread}"


def _at_seen_clock(analysis: Analysis, ceilings: Sequence[Ceiling]) -> list[str]:
    """ "1.07 PFLOP/s bf16 tensor at the 1980 MHz seen", of the first that has a clock."""
    state = analysis.device_state
    clock = None if state is None else state.sm_clock_mhz_median
    scaled = [found for each in ceilings if (found := at_clock(each, clock)) is not None]
    return [
        f"{formatting.flops_rate(each.rate)} {each.precision} {each.unit} at the {clock} MHz seen"
        for each in scaled[:1]
    ]
