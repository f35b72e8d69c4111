"""MFU, HFU and MBU of a step (Chowdhery et al. 2022, appendix B; docs/numbers.md)."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from gpuprof.roofline.analysis import StepTimes, Utilization
from gpuprof.roofline.call_groups import (
    CallGroup,
    call_groups,
    full_matmul_flops,
    full_recomputed_flops,
    has_backward,
)
from gpuprof.roofline.ceilings import Ceiling, Roof
from gpuprof.roofline.cost_models.call import OpCall
from gpuprof.roofline.weight_traffic import key_value_bytes, weight_bytes
from gpuprof.roofline.work import Work

_BytesOfCall: TypeAlias = Callable[[OpCall], int | None]

_NARROW = ("fp4", "fp8", "int4", "int8")


def utilization(work: Work, times: StepTimes, roof: Roof | None) -> Utilization | None:
    """Shares of the peaks from the work of the profiled steps and the time of the unprofiled ones.

    None without timed steps or matmuls. The peak is that of the precision with most FLOPs.
    """
    if times.timed == 0 or not times.median_ns:
        return None
    full = kept = again_full = again_kept = checkpointed = 0
    by_precision: dict[str, int] = {}
    groups = tuple(call_groups(work))
    for group in groups:
        cost, calls = group.signature.cost, group.calls
        if cost is None or cost.flops is None:
            continue
        matmul, matmul_full = cost.matmul_flops() or 0, full_matmul_flops(cost)
        kept += calls * matmul
        full += calls * matmul_full
        if group.repeated:
            checkpointed += calls * matmul_full
            again_kept += calls * matmul
            again_full += calls * matmul_full
        else:
            again_kept += calls * cost.recomputed_flops
            again_full += calls * full_recomputed_flops(cost)
        for part in cost.flops:
            if part.kind == "matmul":
                counted = by_precision.get(part.precision, 0)
                by_precision[part.precision] = counted + calls * part.count
    if full == 0:
        return None
    precision = max(by_precision, key=lambda name: by_precision[name])
    peak = roof.compute_rate("matmul", precision) if roof is not None else None
    other = _other_peak(by_precision, precision, roof)
    step_s = times.median_ns / 1e9

    def share(flops: int, of: Ceiling | None) -> float | None:
        return None if of is None else flops / step_s / of.rate

    model = round((full - again_full) / work.steps)
    model_causal = round((kept - again_kept) / work.steps)
    hardware, hardware_causal = round(full / work.steps), round(kept / work.steps)
    weights = keys_values = None
    if not has_backward(work):
        weights = _per_step(_bytes_to_read(groups, weight_bytes), work.steps)
        keys_values = _per_step(_bytes_to_read(groups, key_value_bytes), work.steps)
    memory_peak = None if roof is None or weights is None else roof.memory_rate()
    mbu = None
    if memory_peak is not None and weights is not None and keys_values is not None:
        mbu = (weights + keys_values) / step_s / memory_peak.rate
    return Utilization(
        precision=precision,
        model_flops=model,
        model_flops_causal=model_causal,
        hardware_flops=hardware,
        hardware_flops_causal=hardware_causal,
        checkpointed_flops=round(checkpointed / work.steps),
        step_ns=times.median_ns,
        flops_per_s=model / step_s,
        peak=peak,
        mfu=share(model, peak),
        mfu_causal=share(model_causal, peak),
        hfu=share(hardware, peak),
        hfu_causal=share(hardware_causal, peak),
        other_peak=other,
        mfu_other_peak=share(model, other),
        weight_bytes=weights,
        key_value_bytes=keys_values,
        memory_peak=memory_peak,
        mbu=mbu,
    )


def _other_peak(counts: dict[str, int], precision: str, roof: Roof | None) -> Ceiling | None:
    """The second peak that a run with 8-bit products is held against."""
    narrow = [name for name in _NARROW if counts.get(name)]
    if roof is None or not narrow:
        return None
    second = "bf16" if precision in _NARROW else max(narrow, key=lambda name: counts[name])
    return roof.compute_rate("matmul", second)


def _bytes_to_read(groups: Iterable[CallGroup], of_call: _BytesOfCall) -> int | None:
    """Bytes of all calls of `groups`; None where those of one are not known."""
    total = 0
    for group in groups:
        value = 0 if group.signature.call is None else of_call(group.signature.call)
        if value is None:
            return None
        total += group.calls * value
    return total


def _per_step(total: int | None, steps: int) -> int | None:
    return None if total is None else round(total / steps)
