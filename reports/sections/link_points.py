"""What crosses a link, as points of a roofline of its own: bytes of a call and bytes/s."""

from gpuprof.roofline.analysis import RooflinePoint


def link_coordinates(point: RooflinePoint) -> tuple[float | None, float | None]:
    """Bytes of one transfer, and what it reached of its link; None where they are unknown.

    Of a collective that is the bus bandwidth, which compares with a link whatever the number of
    ranks (nccl-tests, doc/PERFORMANCE.md). Where calls differ in size, the mean.
    """
    transfer = point.transfer
    if transfer is None or transfer.total_bytes is None or not transfer.calls:
        return None, None
    rate = transfer.bus_bytes_per_s
    return transfer.total_bytes / transfer.calls, transfer.bytes_per_s if rate is None else rate
