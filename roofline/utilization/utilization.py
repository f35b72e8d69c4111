"""MFU, HFU and MBU of a step (Chowdhery et al. 2022, appendix B; docs/numbers.md)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpuprof.roofline.analysis import Utilization
from gpuprof.roofline.machine.ceilings import Ceiling, Roof
from gpuprof.roofline.step_figures import StepDefinition, StepTimes
from gpuprof.roofline.utilization.weight_traffic import WeightTraffic
from gpuprof.roofline.work.call_groups import (
    CallGroup,
    call_groups,
    full_matmul_flops,
    full_recomputed_flops,
)
from gpuprof.roofline.work.work import Work

_NARROW = ("fp4", "fp8", "int4", "int8")


@dataclass
class _Counts:
    """Matmul FLOPs of all profiled steps, causal attention in full and as the pairs it keeps.

    Those of the model alone: an optimizer's own products (Muon's Newton-Schulz iteration, the dot
    products of L-BFGS) stand apart.
    """

    optimizer: int = 0
    full: int = 0
    kept: int = 0
    # Of these, what is computed a second time.
    again_full: int = 0
    again_kept: int = 0
    # Of again_full, what activation checkpointing repeated.
    checkpointed: int = 0
    by_precision: Counter[str] = field(default_factory=Counter)


def utilization(
    work: Work,
    times: StepTimes,
    roofs: Sequence[Roof],
    read: WeightTraffic,
    *,
    profiled: StepDefinition,
) -> Utilization | None:
    """Shares of the peaks from the work of the profiled steps and the time of the unprofiled ones.

    Without those, or where they did other work, the time of the profiled ones themselves, by the
    definition `profiled`. `roofs` are those of the devices that did the work, and the shares of
    their peaks together; none where any is unknown. `read` is what a step of `work` reads of its
    model. None without a step or matmuls. The peak is that of the precision with most FLOPs.
    """
    step_ns = times.profiled_mean_ns if times.unequal else times.length_ns
    if not step_ns:
        return None
    counts = _count(call_groups(work))
    if counts.full == 0:
        return None
    precision = max(counts.by_precision, key=lambda name: counts.by_precision[name])
    roof = roofs[0] if roofs else None
    peak = roof.compute_rate("matmul", precision) if roof is not None else None
    other = _other_peak(counts.by_precision, precision, roof)
    step_s = step_ns / 1e9

    def share(flops: int, of: Ceiling | None) -> float | None:
        if of is None or of.precision is None:
            return None
        rates = [each.compute_rate("matmul", of.precision) for each in roofs]
        known = [rate.rate for rate in rates if rate is not None]
        return flops / step_s / sum(known) if len(known) == len(rates) else None

    hardware, hardware_causal = round(counts.full / work.steps), round(counts.kept / work.steps)
    model = round((counts.full - counts.again_full) / work.steps)
    model_causal = round((counts.kept - counts.again_kept) / work.steps)
    weights, keys_values = read.weight_bytes, read.key_value_bytes
    # What a step reads; of a small model that stays in a CPU's caches.
    data_bytes = (weights or 0) + (keys_values or 0)
    memory_peak = None if roof is None or weights is None else roof.memory_rate_of(data_bytes)
    mbu = None
    if memory_peak is not None and weights is not None and keys_values is not None:
        bandwidths = [each.memory_rate_of(data_bytes) for each in roofs]
        known = [rate.rate for rate in bandwidths if rate is not None]
        if len(known) == len(bandwidths):
            mbu = (weights + keys_values) / step_s / sum(known)
    return Utilization(
        precision=precision,
        model_flops=model,
        model_flops_causal=model_causal,
        hardware_flops=hardware,
        hardware_flops_causal=hardware_causal,
        checkpointed_flops=round(counts.checkpointed / work.steps),
        optimizer_flops=round(counts.optimizer / work.steps),
        step_ns=step_ns,
        basis="timed" if times.timed and not times.unequal else profiled,
        devices=max(len(roofs), 1),
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


def _count(groups: Iterable[CallGroup]) -> _Counts:
    counts = _Counts()
    for group in groups:
        cost, calls = group.signature.cost, group.calls
        if cost is None or cost.flops is None:
            continue
        if group.phase == "optimizer":
            counts.optimizer += calls * (cost.matmul_flops() or 0)
            continue
        full, kept = calls * full_matmul_flops(cost), calls * (cost.matmul_flops() or 0)
        counts.full += full
        counts.kept += kept
        if group.repeated:
            counts.checkpointed += full
        counts.again_full += full if group.repeated else calls * full_recomputed_flops(cost)
        counts.again_kept += kept if group.repeated else calls * cost.recomputed_flops
        for part in cost.flops:
            if part.kind == "matmul":
                counts.by_precision[part.precision] += calls * part.count
    return counts


def _other_peak(counts: Counter[str], precision: str, roof: Roof | None) -> Ceiling | None:
    """The second peak that a run with 8-bit products is compared with."""
    narrow = [name for name in _NARROW if counts[name]]
    if roof is None or not narrow:
        return None
    second = "bf16" if precision in _NARROW else max(narrow, key=lambda name: counts[name])
    return roof.compute_rate("matmul", second)
