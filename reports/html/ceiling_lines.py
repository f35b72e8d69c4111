"""The ceilings of a roofline as lines, with what stands beside them."""

from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec

from gpuprof.reports import formatting
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.machine.ceilings import Ceiling, Source, at_clock

# Ceilings of one source within this share of each other share a line and a label.
_SAME_RATE = 0.002


class CeilingLine(msgspec.Struct, frozen=True, kw_only=True):
    """A straight line in the log-log plane from (x0, y0) to (x1, y1).

    `used`: the program did work that it bounds. `is_roof`: the percentages are taken against its
    source.
    """

    kind: str
    # What it is and its rate, as words; the name is "" where another line already has it.
    name: str
    rate: str
    source: Source
    used: bool
    is_roof: bool
    # The SM clock that NVML saw, for a datasheet's peak drawn a second time at that clock.
    clock_mhz: int | None = None
    x0: float
    y0: float
    x1: float
    y1: float


def used_precisions(points: Iterable[RooflinePoint]) -> frozenset[tuple[str, str]]:
    """(FLOP kind, precision) of all work counted."""
    return frozenset(
        (part.kind, part.precision) for point in points for part in point.flops or () if part.count
    )


def ceiling_lines(
    ceilings: Sequence[Ceiling],
    x_range: tuple[float, float],
    used: frozenset[tuple[str, str]],
    *,
    roof_source: Source | None,
    clock_mhz: int | None,
) -> tuple[CeilingLine, ...]:
    """The lines of all `ceilings`, datasheet and measured apart, and peaks at the seen clock."""
    lines = tuple(
        line
        for source in get_args(Source)
        for line in _lines(
            [c for c in ceilings if c.source == source],
            x_range,
            used,
            is_roof=source == roof_source,
        )
    )
    return lines + _clock_lines(at_seen_clock(ceilings, used, clock_mhz), lines)


def _lines(
    ceilings: Sequence[Ceiling],
    x_range: tuple[float, float],
    used: frozenset[tuple[str, str]],
    *,
    is_roof: bool,
) -> list[CeilingLine]:
    """The lines of one source: memory up to the highest compute roof, compute from its ridge on."""
    compute = sorted((c for c in ceilings if c.kind == "compute"), key=_order)
    memory = sorted((c for c in ceilings if c.kind == "memory"), key=_order)
    left, right = 10 ** x_range[0], 10 ** x_range[1]
    heights = [c.rate for c in compute if bounds(c, used)], [c.rate for c in compute]
    lines = []
    for ceiling in memory:
        start = left
        # Up to the highest roof in use; the rest of the line belongs to the roofs that are not.
        for rates, name in zip(heights, (ceiling.level or "memory", ""), strict=True):
            end = min(max(rates) / ceiling.rate, right) if rates else right
            if end <= start:
                continue
            lines.append(
                CeilingLine(
                    kind="memory",
                    name=name,
                    rate=formatting.byte_rate(ceiling.rate),
                    source=ceiling.source,
                    used=bool(name),
                    is_roof=is_roof,
                    x0=start,
                    y0=start * ceiling.rate,
                    x1=end,
                    y1=end * ceiling.rate,
                )
            )
            start = end
    # With several memory levels the fastest one has the leftmost ridge.
    fastest = max((c.rate for c in memory), default=None)
    for group in (
        *_equal_rates([c for c in compute if bounds(c, used)]),
        *_equal_rates([c for c in compute if not bounds(c, used)]),
    ):
        rate = group[0].rate
        lines.append(
            CeilingLine(
                kind="compute",
                name=_group_name(group),
                rate=formatting.flops_rate(rate),
                source=group[0].source,
                used=bounds(group[0], used),
                is_roof=is_roof,
                x0=left if fastest is None else min(max(rate / fastest, left), right),
                y0=rate,
                x1=right,
                y1=rate,
            )
        )
    return lines


def at_seen_clock(
    ceilings: Iterable[Ceiling], used: frozenset[tuple[str, str]], clock_mhz: int | None
) -> list[Ceiling]:
    """The datasheet's peaks in use, at the median SM clock of the timed steps."""
    scaled = (at_clock(each, clock_mhz) for each in ceilings if bounds(each, used))
    return [ceiling for ceiling in scaled if ceiling is not None]


def _clock_lines(
    ceilings: Sequence[Ceiling], lines: Sequence[CeilingLine]
) -> tuple[CeilingLine, ...]:
    """One line for each rate of `ceilings`, from the memory roof on, as the nominal ones."""
    promised = [line for line in lines if line.source == "datasheet"]
    slopes = [line.y0 / line.x0 for line in promised if line.kind == "memory"]
    return tuple(
        CeilingLine(
            kind="compute",
            name=f"{_group_name(group)} at {group[0].clock_mhz} MHz",
            rate=formatting.flops_rate(group[0].rate),
            source="datasheet",
            used=True,
            is_roof=False,
            clock_mhz=group[0].clock_mhz,
            x0=group[0].rate / max(slopes) if slopes else min(line.x0 for line in promised),
            y0=group[0].rate,
            x1=max(line.x1 for line in promised),
            y1=group[0].rate,
        )
        for group in _equal_rates(sorted(ceilings, key=_order))
    )


def bounds(ceiling: Ceiling, used: frozenset[tuple[str, str]]) -> bool:
    """True where the program did work that this ceiling bounds.

    Matmuls run on tensor units where the device has them for the precision, else on vector units.
    """
    if ceiling.precision is None:
        return False
    if ceiling.unit == "tensor":
        return ("matmul", ceiling.precision) in used
    return ("vector", ceiling.precision) in used or ("matmul", ceiling.precision) in used


def _order(ceiling: Ceiling) -> tuple[float, str, str]:
    return (-ceiling.rate, ceiling.unit or "", ceiling.precision or ceiling.level or "")


def _equal_rates(ceilings: Sequence[Ceiling]) -> list[list[Ceiling]]:
    """Neighbours of `ceilings`, sorted by rate, whose lines would lie on each other."""
    groups: list[list[Ceiling]] = []
    for ceiling in ceilings:
        if groups and groups[-1][0].rate - ceiling.rate <= _SAME_RATE * ceiling.rate:
            groups[-1].append(ceiling)
        else:
            groups.append([ceiling])
    return groups


def _group_name(group: Sequence[Ceiling]) -> str:
    """ "bf16, fp16 tensor"; units apart: "fp64 tensor, fp32 vector"."""
    units = dict.fromkeys(ceiling.unit for ceiling in group)
    return ", ".join(
        f"{', '.join(c.precision or '' for c in group if c.unit == unit)} {unit}" for unit in units
    )
