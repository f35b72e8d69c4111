"""How bandwidths of communication and copies are computed."""

import math
from collections.abc import Iterator

from gpuprof.reports import formatting
from gpuprof.reports.blocks import ComputedFigure
from gpuprof.reports.computed.formulas import computation, seconds
from gpuprof.reports.figures import roof_percent
from gpuprof.roofline.analysis import Transfer
from gpuprof.roofline.bus_bandwidth import find_collective

# Calls of different kinds in one row have no one factor.
_CLOSE = 1e-6


def of_bandwidths(transfer: Transfer) -> Iterator[ComputedFigure]:
    """The bandwidth of one row, that of the bus, and its share of the link; unknown ones are left
    out."""
    times = {"t": seconds(transfer.device_ns), "w": seconds(transfer.waiting_ns or 0)}
    moved, rate, bus = transfer.total_bytes, transfer.bytes_per_s, transfer.bus_bytes_per_s
    if moved is not None and rate is not None:
        text = formatting.byte_rate(rate)
        yield ComputedFigure("Bandwidth", text, computation("bandwidth", S=moved, **times))
    factor = _factor(transfer)
    if moved is not None and rate and bus is not None and factor is not None:
        if math.isclose(bus / rate, factor, rel_tol=_CLOSE):
            found = computation("bus bandwidth", f=factor, S=moved, **times)
            yield ComputedFigure("Bus bandwidth", formatting.byte_rate(bus), found)
    if transfer.roof_ns is not None and transfer.roof_fraction is not None:
        found = computation("share of its link", r=seconds(transfer.roof_ns), **times)
        yield ComputedFigure("Of its link", roof_percent(transfer.roof_fraction), found)


def _factor(transfer: Transfer) -> float | None:
    collective = find_collective(transfer.what)
    if collective is None or transfer.group_size is None:
        return None
    return collective.bus_factor(transfer.group_size)
