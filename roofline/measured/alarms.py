"""Where counted work is so far from the models' that one of them may be wrong: the cause, or none.

A difference with a small share of the time, or within what a counter is known to be off, is shown
beside its figures and is no warning.
"""

from collections.abc import Iterator
from typing import Final

from gpuprof.roofline.activity_figures import Activity, Reconciliation
from gpuprof.roofline.measured_figures import UNEXPLAINED, MeasuredKernel, MeasuredWork

# Of the peak: between OFU and MFU, and of DRAM's bandwidth between counted and modelled bytes.
_FAR_APART: Final = 0.1
_DRAM_FAR_APART: Final = 0.2
# An operator's counted figure over its model's: tensor FLOPs off by this share, bytes that are more
# than so many times the compulsory ones, and less of either where no reason is known.
_FLOPS_APART: Final = 0.1
_TIMES_THE_BYTES: Final = 2.0
_FLOPS_APART_UNEXPLAINED: Final = 0.02
_BYTES_APART_UNEXPLAINED: Final = 0.25
# Of the counted kernels' time.
_NOTABLE: Final = 0.05
# Differences named in one sentence, the largest first.
_NAMED: Final = 3
# Of the peak: a part of a difference below this is not worth words.
_WORDS_FROM: Final = 0.005


def discrepancies(activity: Activity | None, measured: MeasuredWork | None) -> tuple[str, ...]:
    """A sentence for each kind of counted work that is far from the models', with the cause."""
    found: list[str] = []
    if activity is not None:
        found += _without_products(activity)
        found += _of_dram(activity)
        if activity.reconciled is not None:
            found += _of_utilization(activity.reconciled)
    if measured is not None:
        found += _of_counters(measured)
    return tuple(found)


def differs(found: Reconciliation) -> bool:
    """Whether OFU and MFU differ by more than their figures are uncertain."""
    return abs(found.gap) > found.uncertainty


def is_unexplained(found: Reconciliation) -> bool:
    """Whether more is unexplained than the figures are uncertain."""
    return abs(found.unexplained) > found.uncertainty


def causes(found: Reconciliation) -> str:
    """The largest differences with their signs: "+6.4 points ..., +1.1 points ..."."""
    parts = [
        (each.fraction, each.reason)
        for each in found.differences
        if abs(each.fraction) >= _WORDS_FROM
    ]
    if is_unexplained(found):
        more = "counts too little, or other work runs on this device"
        less = "counts products that do not run, or not in each step"
        parts.append(
            (found.unexplained, f"unexplained: the model {more if found.unexplained > 0 else less}")
        )
    parts.sort(key=lambda part: -abs(part[0]))
    return "; ".join(
        f"{fraction * 100:+.1f} points {reason}" for fraction, reason in parts[:_NAMED]
    )


def _of_utilization(found: Reconciliation) -> Iterator[str]:
    if not differs(found) or (abs(found.gap) < _FAR_APART and not is_unexplained(found)):
        return
    yield (
        f"tensor cores were in use for {found.ofu:.1%} of the peak (OFU) and the model's FLOPs are "
        f"{found.mfu:.1%} of it (MFU): {causes(found)}"
    )


def _without_products(found: Activity) -> Iterator[str]:
    """Where the step's operators do no product, and tensor cores work nevertheless."""
    if found.modelled_tensor == 0.0 and (found.tensor_active or 0.0) >= _FAR_APART:
        yield (
            f"tensor cores were active in {found.tensor_active:.1%} of the cycles and no product "
            "for them was counted: the models lack some, or other work runs on this device"
        )


def _of_dram(found: Activity) -> Iterator[str]:
    if found.dram_active is None or not found.dram_bytes or found.modelled_bytes is None:
        return
    apart = found.dram_active * (1 - found.modelled_bytes / found.dram_bytes)
    if abs(apart) < _DRAM_FAR_APART:
        return
    ratio = found.dram_bytes / found.modelled_bytes if found.modelled_bytes else float("inf")
    yield (
        f"DRAM moved {ratio:.2f} times the bytes of the models, {abs(apart):.0%} of its "
        f"bandwidth {'more' if apart > 0 else 'less'}: {found.dram_reason or UNEXPLAINED}"
    )


def _of_counters(measured: MeasuredWork) -> Iterator[str]:
    """The operator whose difference has most device time, for FLOPs and for bytes."""
    total_ns = sum(kernel.device_ns for kernel in measured.kernels)
    far = [
        (kernel.device_ns, about, ratio, _reason(kernel, about), kernel.op)
        for kernel in measured.kernels
        if kernel.calls and kernel.device_ns >= _NOTABLE * total_ns
        for about, ratio in _ratios(kernel)
        if _is_far(about, ratio, _reason(kernel, about))
    ]
    for wanted in ("tensor FLOPs", "bytes read", "bytes written"):
        those = [each for each in far if each[1] == wanted]
        if not those:
            continue
        device_ns, about, ratio, reason, operator = max(those, key=lambda each: each[0])
        others = f" (and {len(those) - 1} others)" if len(those) > 1 else ""
        yield (
            f"{operator}{others} has {ratio:.2f} times the {about} of its model, in "
            f"{device_ns / total_ns:.0%} of the counted kernels' time: {reason}"
        )


def _is_far(about: str, ratio: float, reason: str) -> bool:
    apart = abs(ratio - 1)
    if about == "tensor FLOPs":
        return apart > (_FLOPS_APART_UNEXPLAINED if reason == UNEXPLAINED else _FLOPS_APART)
    return ratio > _TIMES_THE_BYTES or (reason == UNEXPLAINED and apart > _BYTES_APART_UNEXPLAINED)


def _reason(kernel: MeasuredKernel, about: str) -> str:
    return next((each.text for each in kernel.reasons if each.about == about), UNEXPLAINED)


def _ratios(kernel: MeasuredKernel) -> Iterator[tuple[str, float]]:
    for part in kernel.flops:
        if part.unit == "tensor" and part.ratio:
            yield "tensor FLOPs", part.ratio
    for about, figure in (
        ("bytes read", kernel.bytes_read),
        ("bytes written", kernel.bytes_written),
    ):
        if figure.ratio:
            yield about, figure.ratio
