"""What of the device time the counts cover."""

from collections.abc import Iterable

import polars as pl

from gpuprof.roofline.analysis import Coverage, RooflinePoint, UnmodelledOp
from gpuprof.roofline.points.points import NO_OP
from gpuprof.roofline.work.work import Work


def coverage(
    ops: tuple[RooflinePoint, ...], kernels: tuple[RooflinePoint, ...], work: Work
) -> Coverage:
    """The shares of the device time of `ops`, and of their `kernels`, that are counted."""
    device_ns = sum(point.device_ns for point in ops)
    if device_ns == 0:
        return Coverage(
            device_ns=0,
            outside_ns=work.outside_ns,
            launches=work.launches,
            lost_launches=work.lost_launches,
        )

    def share(points: Iterable[RooflinePoint]) -> float:
        return sum(point.device_ns for point in points) / device_ns

    def counted(point: RooflinePoint) -> bool:
        return point.flops is not None and _bytes_are_known(point)

    counters = [number for number, one in enumerate(work.signatures) if one.counted]
    # An operator around the launch of a graph does not tell what each of its kernels is.
    in_unknown_graphs = work.kernels.filter(
        pl.col("replay").is_not_null()
        & pl.col("op_certain").is_null()
        & pl.col("signature").is_not_null()
        & ~pl.col("signature").is_in(counters)
    )
    unknown_ns = int(in_unknown_graphs["duration_ns"].sum())
    without_op = {NO_OP, *(one.name for one in work.signatures if one.counted)}
    unmodelled: dict[str, tuple[int, int]] = {}
    for point in ops:
        if not counted(point):
            ns, calls = unmodelled.get(point.name, (0, 0))
            unmodelled[point.name] = (ns + point.device_ns, calls + point.calls)
    return Coverage(
        device_ns=device_ns,
        with_op=share([point for point in ops if point.name not in without_op])
        - unknown_ns / device_ns,
        with_flops=share([point for point in ops if point.flops is not None]),
        with_bytes=share([point for point in ops if _bytes_are_known(point)]),
        kernels_counted=share(filter(counted, kernels)),
        outside_ns=work.outside_ns,
        launches=work.launches,
        lost_launches=work.lost_launches,
        unmodelled=tuple(
            UnmodelledOp(name, ns, calls)
            for name, (ns, calls) in sorted(unmodelled.items(), key=lambda item: -item[1][0])
        ),
    )


def _bytes_are_known(point: RooflinePoint) -> bool:
    """Of its device's memory, or over the link that binds it."""
    known = point.transfer is not None and point.transfer.bytes_per_s is not None
    return known or point.total_bytes is not None
