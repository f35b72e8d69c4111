"""How the columns of a table of points are computed, on the largest row that has them."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import ComputedFigure, ComputedFigures
from gpuprof.reports.computation import Computation
from gpuprof.reports.computed.formulas import computation, seconds
from gpuprof.reports.figures import point_roof_percent
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.machine.ceilings import Ceiling

_NOT_SEEN: Final = 1e-3


def of_columns(points: Sequence[RooflinePoint], analysis: Analysis) -> tuple[ComputedFigures, ...]:
    """Of a table of all `points`; () where it has no rows."""
    if not points:
        return ()
    counted = (point for point in points if point.roof_ns is not None and point.total_flops)
    point = next(counted, points[0])
    name = formatting.short_name(point.name)
    title = f"How these columns are computed, on {formatting.joined([name, point.phase])}"
    return (ComputedFigures(title, tuple(_figures(point, analysis))),)


def _figures(point: RooflinePoint, analysis: Analysis) -> Iterator[ComputedFigure]:
    """Each rate of `point`; unknown ones are left out."""
    device_s = seconds(point.device_ns)
    flops, moved = point.total_flops, point.total_bytes
    # Those of ranges, too: they hold a part of it, or lie in each other.
    all_ns = analysis.coverage.device_ns
    if all_ns:
        share = computation("Share", t=device_s, D=seconds(all_ns))
        yield ComputedFigure("Share", formatting.percent(point.device_fraction), share)
    if flops is not None and point.flops_per_s is not None:
        value = formatting.flops_rate(point.flops_per_s)
        yield ComputedFigure("FLOP/s", value, computation("FLOP/s", F=flops, t=device_s))
    if moved is not None and point.bytes_per_s is not None:
        value = formatting.byte_rate(point.bytes_per_s)
        yield ComputedFigure("Bytes/s", value, computation("Bytes/s", B=moved, t=device_s))
    if flops is not None and moved and point.arithmetic_intensity is not None:
        value = formatting.intensity(point.arithmetic_intensity)
        yield ComputedFigure("FLOP/byte", value, computation("FLOP/byte", F=flops, B=moved))
    if point.roof_ns is not None and point.roof_fraction is not None:
        found = _of_roof_time(point, point.roof_ns, analysis)
        if found is not None:
            yield ComputedFigure("Roof time", formatting.duration(point.roof_ns), found)
        share = computation("Roof", r=seconds(point.roof_ns), t=device_s)
        yield ComputedFigure("Roof", point_roof_percent(point), share)


def _of_roof_time(point: RooflinePoint, roof_ns: int, analysis: Analysis) -> Computation | None:
    """None where several precisions, levels of memory or a link make it up."""
    ceiling = next(
        (
            each
            for each in analysis.ceilings
            if each.label == point.roof and each.source == analysis.roof_source
        ),
        None,
    )
    if ceiling is None or point.transfer is not None:
        return None
    work = point.total_bytes if ceiling.kind == "memory" else _bound_flops(point, ceiling)
    # The roof of all calls is rounded to a nanosecond, which is not seen in three digits of it.
    if not work or abs(work / ceiling.rate * 1e9 - roof_ns) > min(1, _NOT_SEEN * roof_ns):
        return None
    if ceiling.kind == "memory":
        return computation("roof time, memory", B=work, W=ceiling.rate)
    return computation("roof time, compute", F=work, P=ceiling.rate)


def _bound_flops(point: RooflinePoint, ceiling: Ceiling) -> int:
    kind = "matmul" if ceiling.unit == "tensor" else "vector"
    return sum(
        part.count
        for part in point.flops or ()
        if part.kind == kind and part.precision == ceiling.precision
    )
