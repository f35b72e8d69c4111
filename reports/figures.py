"""Figures of points that carry a remark: shares of a roof, gains, FLOPs by precision."""

from collections.abc import Iterable

from gpuprof.reports import formatting
from gpuprof.roofline.analysis import Analysis, Bottleneck, RooflinePoint, Transfer
from gpuprof.roofline.classes import CACHE
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.module_figures import SourceLine

OVER_PEAK = "over 100%: peak or count wrong, or data in cache"


def verdict_sentence(analysis: Analysis) -> str:
    """What the verdict on a step rests on, and what removing it would gain."""
    verdict, split = analysis.bottleneck, analysis.split
    in_steps = split is None or split.basis != "whole trace"
    gain = gain_sentence(verdict, in_steps=in_steps)
    return f"{formatting.sentence(verdict.evidence)} {gain}".rstrip()


def gain_sentence(verdict: Bottleneck, *, in_steps: bool) -> str:
    """What removing a bottleneck would gain; "" where that is nothing or unknown."""
    per = "a step" if in_steps else "of the recording"
    if not verdict.gain_ns:
        return ""
    gain = formatting.duration(verdict.gain_ns)
    if verdict.gain_range_ns is None:
        return f"Up to {gain} {per} to gain."
    low, high = map(formatting.duration, verdict.gain_range_ns)
    between = "" if low == high else f", {low} to {high}"
    return f"About {gain} {per} to gain{between}."


def flops_text(flops: tuple[Flops, ...] | None, profiled_steps: int = 0) -> str:
    """FLOPs by unit and precision: "137 GFLOP bf16 matmul + 2.1 MFLOP fp32 vector".

    With `profiled_steps` a mean for one of them.
    """
    if flops is None:
        return formatting.UNKNOWN
    counted = [part for part in flops if part.count]
    if not counted:
        return "none"
    return " + ".join(
        f"{formatting.flops(per_step(profiled_steps, part.count))} {part.precision} {part.kind}"
        for part in counted
    )


def roof_percent(fraction: float | None) -> str:
    """A share of the roof, marked with ! where it is over 100 %."""
    return formatting.percent(fraction) + ("!" if is_over_peak(fraction) else "")


def is_over_peak(fraction: float | None) -> bool:
    """Over 100 % by more than the last printed digit."""
    return fraction is not None and fraction > 1.0005


def point_roof_percent(point: RooflinePoint) -> str:
    """`roof_percent` of a row, unmarked where its class explains why it is over 100 %."""
    if is_unexplained(point):
        return roof_percent(point.roof_fraction)
    return formatting.percent(point.roof_fraction)


def at_its_clock(point: RooflinePoint) -> str:
    """The share of the roof at the clock that ran."""
    fraction = None if point.reading is None else point.reading.roof_fraction
    return formatting.percent(fraction)


def is_unexplained(point: RooflinePoint) -> bool:
    """Whether the share of the roof is over 100 % and a cache does not explain it."""
    return is_over_peak(point.roof_fraction) and point.bottleneck.kind != CACHE


def any_over_peak(points: Iterable[RooflinePoint]) -> bool:
    """True where a share of the roof needs its warning."""
    return any(map(is_unexplained, points))


def transfer_name(transfer: Transfer) -> str:
    """ "all-reduce", "host to device, pageable"; the kind where more is not known."""
    return ", ".join(
        part for part in (transfer.what or transfer.kind, transfer.host_memory) if part
    )


def moved_text(transfer: Transfer | None) -> str:
    """ "all-reduce 45.1 MB"; "" for work that crosses no link."""
    if transfer is None:
        return ""
    size = transfer.message_bytes
    return transfer_name(transfer) + ("" if size is None else f" {formatting.byte_count(size)}")


def launched_by(point: RooflinePoint) -> str:
    """The operator that launched a kernel; "" where none did or it is the point itself."""
    return point.op if point.op != point.name else ""


def line_text(source: SourceLine | None) -> str:
    """ "train.py:42", "train.py" where only the function is known, "" where nothing is."""
    return "" if source is None else source.text


def source_text(source: SourceLine | None) -> str:
    """The place with its function: "train.py:42 in Block.forward"."""
    if source is None:
        return ""
    line = line_text(source)
    return f"{line} in {source.function}" if source.function else line


def per_step(profiled_steps: int, total: float) -> float:
    """`total` over the profiled steps as a mean for one step, where there were steps."""
    return total / profiled_steps if profiled_steps else total


def device_time_ns(profiled_steps: int, point: RooflinePoint) -> float | None:
    """Device time for one step; None where nothing told how long it took, as of counters alone."""
    return per_step(profiled_steps, point.device_ns) if point.device_ns else None


def device_share(point: RooflinePoint) -> float | None:
    """Its share of all device time, of 1; None as with `device_time_ns`."""
    return point.device_fraction if point.device_ns else None


def step_basis(profiled_steps: int) -> str:
    """What the figures that `per_step` gives are of: the same base for all of a table."""
    if not profiled_steps:
        return "totals of the recording: no whole step was profiled"
    return "one step" if profiled_steps == 1 else f"one step, mean of {profiled_steps} profiled"
