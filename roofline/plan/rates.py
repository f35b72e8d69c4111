"""What one GPU and its link reach, from its ceilings and the table achievable.toml."""

from gpuprof.collectors.link_calibration import LinkCalibration
from gpuprof.roofline.bus_bandwidth import bus_factor
from gpuprof.roofline.machine.achievable import achievable
from gpuprof.roofline.machine.ceilings import DEVICE_LINKS, Ceiling, Roof
from gpuprof.roofline.plan.cluster import ComputeRate

_ATTENTION = "attention"
_ATTENTION_BACKWARD = "attention backward"
_OVER_SHORT = " over short sequences"
# Tokens of the longest of these.
_SHORT = 1024
_OPTIMIZER = "Adam"
_COLLECTIVE = "collective"
_BESIDE_COLLECTIVES = "beside a collective"


def compute_rate(roof: Roof, precision: str, sequence: int) -> ComputeRate | None:
    """FLOP/s that large products, and attention over `sequence`, sustain; None without a peak."""
    ceiling = roof.compute_rate("matmul", precision)
    if ceiling is None:
        return None
    over = _OVER_SHORT if sequence <= _SHORT else ""
    products, attention, backward = (
        _share(ceiling, work) for work in ("", _ATTENTION + over, _ATTENTION_BACKWARD + over)
    )
    return ComputeRate(
        products=ceiling.rate * products,
        attention=ceiling.rate * attention,
        attention_backward=ceiling.rate * backward,
        counted="executed",
        basis=(
            f"{products:.0%} of {ceiling.label}, attention {attention:.0%}, backward {backward:.0%}"
        ),
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
        products=rate,
        attention=rate,
        attention_backward=rate,
        counted="model",
        basis=reached,
        peak=ceiling.rate,
    )


def reached_memory_rates(roof: Roof) -> tuple[float, float] | None:
    """Bytes/s that large arrays and an optimizer reach of DRAM; None without a ceiling."""
    ceiling = roof.memory_rate()
    if ceiling is None:
        return None
    return ceiling.rate * _share(ceiling, ""), ceiling.rate * _share(ceiling, _OPTIMIZER)


def link_rate(roof: Roof) -> tuple[float, str] | None:
    """Bus bandwidth of large collectives between GPUs of a node, and where it comes from.

    Where it is not known what collectives reach of a link, all of it. None without a link.
    """
    ceiling = _link(roof)
    if ceiling is None:
        return None
    reached = _share(ceiling, _COLLECTIVE)
    return ceiling.rate * reached, f"{reached:.0%} of {ceiling.label}"


def rate_beside_collectives(roof: Roof) -> float:
    """What of its rate computing keeps beside collectives in a node; 1 where nobody measured it."""
    ceiling = _link(roof)
    reach = None if ceiling is None else achievable(ceiling, _BESIDE_COLLECTIVES)
    return 1.0 if reach is None else reach.typical


def _link(roof: Roof) -> Ceiling | None:
    links = (roof.link_rate(level) for level in DEVICE_LINKS)
    return next((link for link in links if link is not None), None)


def measured_link_rate(measured: LinkCalibration) -> tuple[float, str] | None:
    """Bus bandwidth of the largest all-reduce among most ranks of one host, and what that was.

    None where none was measured.
    """
    reduces = [
        one
        for one in measured.collectives
        if (one.collective, one.hosts, one.algorithm) == ("all-reduce", 1, "") and one.times
    ]
    if not reduces:
        return None
    one = max(reduces, key=lambda each: each.ranks)
    largest, took_ns = one.times[-1]
    rate = largest * bus_factor("all-reduce", one.ranks) / took_ns * 1e9
    return rate, f"all-reduce of {one.ranks} ranks as measured, {measured.device}"


def _share(ceiling: Ceiling, work: str) -> float:
    reach = achievable(ceiling, work)
    return 1.0 if reach is None else reach.typical
