"""Products in TF32 that could be in bfloat16: twice the rate, half the bytes."""

from collections.abc import Iterable, Iterator

from gpuprof.roofline.advice.candidate import Candidate, Gain, line_text
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.durations import duration
from gpuprof.roofline.machine.ceilings import Roof
from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.work.work import Work


def bfloat16_products(
    work: Work, points: Iterable[tuple[WorkKey, RooflinePoint]], roof: Roof | None
) -> Iterator[Candidate]:
    """Candidates among the operators' `points`, which are sums over the steps of `work`.

    That they come as near to their roof as now is likely. Half of it may be lost to casts, which
    autocast adds.
    """
    if roof is None:
        return
    for key, point in points:
        roof_ns = _roof_ns(point, roof)
        if roof_ns is None or not point.roof_ns:
            continue
        gain_ns = round(point.device_ns * max(0.0, 1 - roof_ns / point.roof_ns) / work.steps)
        yield Candidate(
            finding="bfloat16",
            what=point.name,
            gain=Gain(gain_ns, gain_ns // 2, gain_ns),
            evidence=f"{duration(point.device_ns // work.steps)} {work.per} are products in TF32",
            place=line_text(point.source),
            module=point.module,
            covers=frozenset([key]),
        )


def _roof_ns(point: RooflinePoint, roof: Roof) -> float | None:
    """How long the products of `point` take at the roof in bfloat16; None where they are none."""
    products = [part for part in point.flops or () if part.kind == "matmul"]
    if {part.precision for part in products} != {"tf32"} or point.total_bytes is None:
        return None
    rate, memory = roof.compute_rate("matmul", "bf16"), roof.memory_rate()
    if rate is None or rate.unit != "tensor" or memory is None:
        return None
    flops = sum(part.count for part in products)
    return 1e9 * max(flops / rate.rate, point.total_bytes / 2 / memory.rate)
