"""The plot of memory over time: the data that plotly draws, and a drawing in its place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gpuprof.reports.html.plot_area import Tick
from gpuprof.roofline.memory_figures import MemoryTimeline

_BYTE_UNITS: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_TIME_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
# Of the drawing, in the units of its view box.
WIDTH, HEIGHT = 900, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, WIDTH - 14, 14, HEIGHT - 40
_MOST_TICKS: Final = 6


class MemoryPlotData(msgspec.Struct, frozen=True, kw_only=True):
    """Values in the units that they read well in."""

    time_unit: str
    byte_unit: str
    times: tuple[float, ...]
    allocated: tuple[float, ...]
    # Empty where it is not known at any time.
    reserved: tuple[float | None, ...]
    steps: tuple[tuple[float, float], ...]
    # What the device has, where the plot reaches that far.
    limit: float | None


@dataclass(frozen=True)
class MemoryDrawing:
    """Paths of an SVG."""

    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    allocated: str
    reserved: str
    limit_y: float | None
    # Left edge and width of each profiled step.
    steps: tuple[tuple[float, float], ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def make_memory_plot(timeline: MemoryTimeline, total_bytes: int | None) -> MemoryPlotData:
    """The data of `timeline` on a device with `total_bytes`."""
    reserved = timeline.reserved_bytes
    known = [each for each in reserved if each is not None]
    highest = max([*timeline.allocated_bytes, *known, 1])
    ends = [end for _, end in timeline.steps_ns]
    end_ns = max([timeline.times_ns[-1], *ends, 1])
    per_byte, byte_unit = _unit(highest, _BYTE_UNITS)
    per_time, time_unit = _unit(end_ns, _TIME_UNITS)
    # The last state lasts to the end of the last step.
    times = (*timeline.times_ns, end_ns)
    allocated = (*timeline.allocated_bytes, timeline.allocated_bytes[-1])
    held = (*reserved, reserved[-1]) if known else ()
    near = total_bytes is not None and highest > total_bytes / 2
    return MemoryPlotData(
        time_unit=time_unit,
        byte_unit=byte_unit,
        times=tuple(_short(time / per_time) for time in times),
        allocated=tuple(_short(size / per_byte) for size in allocated),
        reserved=tuple(None if size is None else _short(size / per_byte) for size in held),
        steps=tuple((_short(a / per_time), _short(b / per_time)) for a, b in timeline.steps_ns),
        limit=_short(total_bytes / per_byte) if total_bytes is not None and near else None,
    )


def draw_memory(plot: MemoryPlotData) -> MemoryDrawing:
    """`plot` as it stands where no script runs."""
    known = [each for each in plot.reserved if each is not None]
    highest = 1.08 * max([*plot.allocated, *known, plot.limit or 0.0, 1e-9])
    longest = plot.times[-1] or 1.0

    def x(time: float) -> float:
        return round(_LEFT + time / longest * (_RIGHT - _LEFT), 1)

    def y(size: float) -> float:
        return round(_BOTTOM - size / highest * (_BOTTOM - _TOP), 1)

    def path(sizes: Sequence[float | None]) -> str:
        parts: list[str] = []
        for time, size in zip(plot.times, sizes, strict=True):
            if size is not None:
                parts.append(f"H{x(time)}V{y(size)}" if parts else f"M{x(time)} {y(size)}")
        return "".join(parts)

    return MemoryDrawing(
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=_BOTTOM,
        allocated=path(plot.allocated),
        reserved=path(plot.reserved) if plot.reserved else "",
        limit_y=None if plot.limit is None else y(plot.limit),
        steps=tuple((x(begin), round(x(end) - x(begin), 1)) for begin, end in plot.steps),
        x_ticks=tuple(Tick(x(at), f"{at:g} {plot.time_unit}") for at in _ticks(longest)),
        y_ticks=tuple(Tick(y(at), f"{at:g} {plot.byte_unit}") for at in _ticks(highest)),
    )


def _unit(largest: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    return next((scale, name) for scale, name in units if largest >= scale)


def _short(value: float) -> float:
    """As many digits as can be seen."""
    return float(f"{value:.5g}")


def _ticks(highest: float) -> tuple[float, ...]:
    """Round values from 0 to `highest`, a few."""
    step = 10.0 ** len(str(int(highest)))
    for factor in (2.5, 2.0, 2.0) * 20:
        if highest / (step / factor) > _MOST_TICKS:
            break
        step /= factor
    return tuple(float(f"{index * step:.10g}") for index in range(int(highest / step) + 1))
