"""How the columns of tables are computed, on one row of them."""

from collections.abc import Iterator

from gpuprof.reports import formatting
from gpuprof.reports.blocks import ComputedFigure
from gpuprof.reports.computed.formulas import computation, seconds
from gpuprof.reports.figures import point_roof_percent
from gpuprof.roofline.analysis import RooflinePoint


def of_columns(point: RooflinePoint, all_ns: int) -> Iterator[ComputedFigure]:
    """Each rate of `point`, a row of a table whose device time is `all_ns`; unknown ones are left
    out."""
    device_s = seconds(point.device_ns)
    flops, moved = point.total_flops, point.total_bytes
    if all_ns:
        yield ComputedFigure(
            "Share",
            formatting.percent(point.device_fraction),
            computation("Share", t=device_s, D=seconds(all_ns)),
        )
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
        yield ComputedFigure(
            "Roof",
            point_roof_percent(point),
            computation("Roof", r=seconds(point.roof_ns), t=device_s),
        )
