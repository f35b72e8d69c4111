"""Small copies and fills of one name as one point: alone, a dozen rows of them bury the kernels.

A product of matrices clears a few bytes for each shape it runs on, so "Memset (Device)" has a point
for each. Those that took little time share one; a large copy keeps its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from gpuprof.roofline.analysis import Bottleneck, RooflinePoint
from gpuprof.roofline.classes import UNKNOWN

_KINDS = ("memcpy", "memset")
# A point with a larger share of device time stands alone.
_SMALL = 0.01


@dataclass(frozen=True)
class GroupedPoint:
    """A point as tables show it; `members` are those that it adds up, () where it is itself one."""

    point: RooflinePoint
    members: tuple[RooflinePoint, ...] = ()


def grouped(points: Sequence[RooflinePoint]) -> tuple[GroupedPoint, ...]:
    """`points` with small copies and fills of one name together, sorted by device time."""
    alone: list[GroupedPoint] = []
    alike: dict[tuple[str, str], list[RooflinePoint]] = {}
    for point in points:
        if point.kind in _KINDS and point.device_fraction < _SMALL:
            alike.setdefault((point.kind, point.name), []).append(point)
        else:
            alone.append(GroupedPoint(point))
    together = [_group(members) for members in alike.values()]
    return tuple(sorted([*alone, *together], key=lambda each: -each.point.device_ns))


def _group(members: Sequence[RooflinePoint]) -> GroupedPoint:
    if len(members) == 1:
        return GroupedPoint(members[0])
    return GroupedPoint(_together(members), tuple(members))


def _together(members: Sequence[RooflinePoint]) -> RooflinePoint:
    """One point with the sums of `members`; what is unknown of one is unknown of all."""
    first = members[0]
    device_ns = sum(point.device_ns for point in members)
    total_bytes = _sum(point.total_bytes for point in members)
    one_roof = len({point.roof for point in members}) == 1
    roof_ns = _sum(point.roof_ns for point in members) if one_roof else None
    return msgspec.structs.replace(
        first,
        detail="",
        op="",
        op_detail="",
        phase=first.phase if len({point.phase for point in members}) == 1 else "",
        calls=sum(point.calls for point in members),
        device_ns=device_ns,
        device_fraction=sum(point.device_fraction for point in members),
        flops=first.flops if all(point.flops == first.flops for point in members) else None,
        bytes_read=_sum(point.bytes_read for point in members),
        bytes_written=_sum(point.bytes_written for point in members),
        undivided_bytes=_sum(point.undivided_bytes for point in members),
        bytes_per_s=total_bytes / device_ns * 1e9
        if total_bytes is not None and device_ns
        else None,
        roof_ns=roof_ns,
        roof=first.roof if one_roof else "",
        roof_fraction=roof_ns / device_ns if roof_ns is not None and device_ns else None,
        bottleneck=_verdict(members),
        reading=None,
        spread=None,
        assumptions=tuple(dict.fromkeys(text for point in members for text in point.assumptions)),
    )


def _verdict(members: Sequence[RooflinePoint]) -> Bottleneck:
    """The class that all have, with the sum of what each could gain."""
    kinds = {point.bottleneck.kind for point in members}
    if len(kinds) > 1:
        return Bottleneck(UNKNOWN, f"they are of {len(kinds)} classes", None)
    gain_ns = _sum(point.bottleneck.gain_ns for point in members)
    return Bottleneck(kinds.pop(), f"as each of the {len(members)}", gain_ns)


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if any(value is None for value in known) else sum(v for v in known if v is not None)
