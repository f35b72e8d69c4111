"""OFU beside MFU: why tensor cores were in use for other time than the model's FLOPs need.

The differences are worked out one after the other, from what is known for certain (the lengths of
steps, recomputation, masks) over what kernels' names tell (tiles, algorithm, architecture) to what
only bounds the rest; what none of them accounts for is unexplained.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpuprof.roofline.activity_figures import Reconciliation, UtilizationDifference
from gpuprof.roofline.analysis import Utilization
from gpuprof.roofline.machine.ceilings import Roof
from gpuprof.roofline.measured.tensor_work import ProductKernels, of_older

# Pedersen et al. 2026, arXiv:2605.20799: OFU agrees with the FLOPs of single products to within two
# points of the peak once their tiles are accounted for.
_LEAST_UNCERTAINTY: Final = 0.02
# GPM counts cycles in which a tensor core does anything at all. Products of 8192 by cuBLAS, whole
# tiles each, keep them active 1.11 times as long as their FLOPs need at the peak rate (H200).
_ACTIVE_OF_NEEDED: Final = 1.2
# Kernels for sm75 2.2 times (H200).
_ACTIVE_OF_NEEDED_BY_OLDER: Final = 2.3
# Winograd's F(4x4, 3x3) multiplies a quarter as often, FFT less still (Lavin and Gray 2016).
_LEAST_OF_PRODUCTS: Final = 0.25
# Of device time without a model: less of it has no products worth a reason.
_WORTH_A_REASON: Final = 0.05
# Differences below this are rounding.
_ROUNDING: Final = 0.0005


@dataclass(frozen=True)
class Compared:
    """What OFU and MFU are made of; of one device, in timed steps like the profiled ones."""

    shares: Utilization
    roof: Roof
    kernels: Sequence[ProductKernels]
    # The counted matrix FLOPs of one step by precision: attention by what its mask keeps.
    products: Counter[str]
    # What tensor cores need for these at their peaks.
    needed_ns: float
    # The mean length of the timed steps.
    step_ns: float
    # Of device time.
    without_flops: float
    compute_capability: str | None
    other_processes: int


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error."""

    value: float
    error: float


def reconcile(
    compared: Compared, tensor_active: Estimate, clock_mhz: Estimate
) -> Reconciliation | None:
    """Tensor activity at the clock that ran beside the model's FLOPs.

    None where products of the precision with most FLOPs run on no tensor cores, or MFU is unknown.
    """
    shares = compared.shares
    peak = compared.roof.compute_rate("matmul", shares.precision)
    if peak is None or peak.unit != "tensor" or not peak.clock_mhz or not shares.step_ns:
        return None
    if shares.basis != "timed" or shares.hardware_flops is None:
        return None
    ofu = tensor_active.value * clock_mhz.value / peak.clock_mhz
    error = math.hypot(tensor_active.error * clock_mhz.value, tensor_active.value * clock_mhz.error)
    mfu = shares.model_flops / peak.rate / (shares.step_ns / 1e9)
    found = [each for each in _certain(compared, mfu, peak.rate) if abs(each.fraction) > _ROUNDING]
    left = ofu - mfu - sum(each.fraction for each in found)
    bounded = _of_the_rest(compared, left, mfu + sum(each.fraction for each in found))
    found += [each for each in bounded if abs(each.fraction) > _ROUNDING]
    return Reconciliation(
        ofu=ofu,
        mfu=mfu,
        precision=shares.precision,
        clock_mhz=round(clock_mhz.value),
        peak_clock_mhz=peak.clock_mhz,
        uncertainty=max(_LEAST_UNCERTAINTY, 2 * error / peak.clock_mhz),
        differences=tuple(found),
        unexplained=ofu - mfu - sum(each.fraction for each in found),
    )


def _certain(compared: Compared, mfu: float, rate: float) -> Iterator[UtilizationDifference]:
    """What is counted or stands in kernels' names."""
    shares, step_s = compared.shares, compared.step_ns / 1e9
    yield UtilizationDifference(
        "the mean of the timed steps instead of their median",
        mfu * (shares.step_ns / compared.step_ns - 1),
    )
    hardware = shares.hardware_flops or 0
    kept = hardware if shares.hardware_flops_causal is None else shares.hardware_flops_causal
    again = (hardware - shares.model_flops) / rate / step_s
    checkpointed = min(again, shares.checkpointed_flops / rate / step_s)
    yield UtilizationDifference("recomputation of checkpointed activations", checkpointed)
    yield UtilizationDifference("recomputation of attention scores", again - checkpointed)
    yield UtilizationDifference("pairs that causal masks drop", (kept - hardware) / rate / step_s)
    yield UtilizationDifference(
        "the optimizer's own products", shares.optimizer_flops / rate / step_s
    )
    others = sorted(name for name in compared.products if name != shares.precision)
    at_one_peak = (kept + shares.optimizer_flops) / rate / step_s
    yield UtilizationDifference(
        f"products in {' and '.join(others)}, whose peak is another"
        if others
        else "products that the step's operators share",
        compared.needed_ns / compared.step_ns - at_one_peak,
    )
    without = [each for each in compared.kernels if each.without_tensor_cores]
    yield UtilizationDifference(
        "products in kernels without tensor cores",
        -sum(each.needed_ns for each in without) / compared.step_ns,
    )
    padded = [each for each in compared.kernels if not each.without_tensor_cores]
    yield UtilizationDifference(
        f"tiles that reach beyond their matrices ({_tiles(padded)})",
        sum(each.padded_ns for each in padded) / compared.step_ns,
    )


def _of_the_rest(
    compared: Compared, left: float, executed: float
) -> Iterator[UtilizationDifference]:
    """What bounds `left`, each as far as it can account for it; `executed` is counted."""
    if left < 0:
        fewer = [each for each in compared.kernels if each.algorithm]
        most = sum(each.needed_ns for each in fewer) / compared.step_ns * (1 - _LEAST_OF_PRODUCTS)
        names = " and ".join(dict.fromkeys(each.algorithm for each in fewer))
        yield UtilizationDifference(
            f"convolutions by {names}, which multiply less", max(left, -most)
        )
        return
    if compared.other_processes:
        yield UtilizationDifference(
            f"{compared.other_processes} other processes work on this device, whose work the "
            "counters see",
            left,
        )
        return
    for reason, most in _bounds(compared, executed):
        part = min(left, most)
        yield UtilizationDifference(reason, part)
        left -= part


def _bounds(compared: Compared, executed: float) -> Iterator[tuple[str, float]]:
    """Reasons for more activity than counted, with the most that each can account for."""
    older = of_older(compared.kernels, compared.compute_capability)
    if older:
        names = " and ".join(sorted({each.architecture for each in older}))
        share = sum(each.device_ns for each in older) / sum(
            each.device_ns for each in compared.kernels
        )
        yield (
            f"kernels for {names} ({share:.0%} of the products' time), whose instructions use "
            "these tensor cores at a part of their rate",
            sum(each.needed_ns for each in older)
            / compared.step_ns
            * (_ACTIVE_OF_NEEDED_BY_OLDER - 1),
        )
    if compared.without_flops >= _WORTH_A_REASON:
        yield (
            f"products may be in the {compared.without_flops:.0%} of device time without a FLOP "
            "model",
            compared.without_flops,
        )
    yield (
        "cycles in which tensor cores worked, but not at their full rate",
        max(0.0, executed) * (_ACTIVE_OF_NEEDED - 1),
    )


def _tiles(kernels: Sequence[ProductKernels]) -> str:
    """Those whose filling up costs most."""
    costs: Counter[str] = Counter()
    for each in kernels:
        if each.padding is not None:
            costs[each.padding.text] += math.ceil(each.padded_ns)
    return ", ".join(text for text, cost in costs.most_common(2) if cost)
