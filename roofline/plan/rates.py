"""What one GPU and its link reach, from its ceilings and the table achievable.toml."""

from gpuprof.roofline.machine.achievable import achievable
from gpuprof.roofline.machine.ceilings import DEVICE_LINKS, Ceiling, Roof
from gpuprof.roofline.plan.cluster import ComputeRate

_ATTENTION = "attention"
_COLLECTIVE = "collective"


def compute_rate(roof: Roof, precision: str) -> ComputeRate | None:
    """FLOP/s that large products and attention sustain; None without a peak."""
    ceiling = roof.compute_rate("matmul", precision)
    if ceiling is None:
        return None
    products, attention = _share(ceiling, ""), _share(ceiling, _ATTENTION)
    return ComputeRate(
        products=ceiling.rate * products,
        attention=ceiling.rate * attention,
        counted="executed",
        basis=f"{products:.0%} of {ceiling.label}, attention {attention:.0%}",
        peak=ceiling.rate,
    )


def measured_rate(roof: Roof, precision: str, mfu: float, basis: str) -> ComputeRate | None:
    """FLOP/s of a program that reaches `mfu` of the peak; None without a peak."""
    ceiling = roof.compute_rate("matmul", precision)
    if ceiling is None:
        return None
    rate = ceiling.rate * mfu
    reached = f"{mfu:.1%} of {ceiling.label}: {basis}"
    return ComputeRate(
        products=rate, attention=rate, counted="model", basis=reached, peak=ceiling.rate
    )


def reached_memory_rate(roof: Roof) -> float | None:
    """Bytes/s that large arrays reach of DRAM; None without a ceiling."""
    ceiling = roof.memory_rate()
    return None if ceiling is None else ceiling.rate * _share(ceiling, "")


def link_rate(roof: Roof) -> tuple[float, str] | None:
    """Bus bandwidth of large collectives between GPUs of a node, and where it comes from.

    Where it is not known what collectives reach of a link, all of it. None without a link.
    """
    links = (roof.link_rate(level) for level in DEVICE_LINKS)
    ceiling = next((link for link in links if link is not None), None)
    if ceiling is None:
        return None
    reached = _share(ceiling, _COLLECTIVE)
    return ceiling.rate * reached, f"{reached:.0%} of {ceiling.label}"


def _share(ceiling: Ceiling, work: str) -> float:
    reach = achievable(ceiling, work)
    return 1.0 if reach is None else reach.typical
