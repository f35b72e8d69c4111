"""Roofs of links: the rate of a link, and what its latency lets transfers of some size reach.

On logarithmic axes of bytes a call and bytes/s a link is drawn as memory and compute are on those
of work: a flat line at its rate, and a slanted one at one transfer a latency. Both bound what a
transfer can reach; near the corner it reaches half of it, as it takes both times.
"""

from collections.abc import Sequence
from typing import get_args

import msgspec

from gpuprof.reports import formatting
from gpuprof.reports.html.axis_ranges import Range
from gpuprof.reports.html.ceiling_lines import CeilingLine
from gpuprof.roofline.analysis import Transfer
from gpuprof.roofline.classes import COMMUNICATION
from gpuprof.roofline.machine.ceilings import DEVICE_LINKS, HOST_LINKS, Ceiling, Source


def link_ceilings(ceilings: Sequence[Ceiling], transfers: Sequence[Transfer]) -> list[Ceiling]:
    """The links that `transfers` use, as the flat roofs of their axes: for the axes' ranges."""
    used = _used_levels(ceilings, transfers)
    return [
        msgspec.structs.replace(each, kind="compute")
        for each in ceilings
        if each.kind == "link" and each.level in used
    ]


def link_roofs(
    ceilings: Sequence[Ceiling],
    x_range: Range,
    transfers: Sequence[Transfer],
    roof_source: Source | None,
) -> tuple[CeilingLine, ...]:
    """The lines of all links between the ends of the axis of bytes, datasheet and measured."""
    used = _used_levels(ceilings, transfers)
    left, right = 10 ** x_range[0], 10 ** x_range[1]
    lines = []
    for source in get_args(Source):
        for each in ceilings:
            if each.kind != "link" or each.source != source:
                continue
            known = {
                "source": source,
                "used": each.level in used,
                "is_roof": source == roof_source,
            }
            corner = left
            if each.latency_ns:
                seconds = each.latency_ns / 1e9
                corner = min(max(each.rate * seconds, left), right)
                slanted = CeilingLine(
                    kind="memory",
                    name=f"{each.level} latency",
                    rate=formatting.duration(each.latency_ns),
                    x0=left,
                    y0=left / seconds,
                    x1=corner,
                    y1=corner / seconds,
                    **known,
                )
                lines += [slanted] if corner > left else []
            lines.append(
                CeilingLine(
                    kind="compute",
                    name=f"{each.level}, one way",
                    rate=formatting.byte_rate(each.rate),
                    x0=corner,
                    y0=each.rate,
                    x1=right,
                    y1=each.rate,
                    **known,
                )
            )
    return tuple(lines)


def _used_levels(ceilings: Sequence[Ceiling], transfers: Sequence[Transfer]) -> set[str | None]:
    """The names of the links that `transfers` cross, of those that are known."""
    known = {each.level for each in ceilings if each.kind == "link"}
    found: set[str | None] = set()
    for transfer in transfers:
        between_devices = transfer.kind == COMMUNICATION or transfer.what == "device to device"
        levels = DEVICE_LINKS if between_devices else HOST_LINKS.get(transfer.what, ())
        first = next((level for level in levels if level in known), None)
        if first is not None:
            found.add(first)
    return found
