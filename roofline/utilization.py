"""Model FLOP utilization of a step (Chowdhery et al. 2022, appendix B)."""

from gpuprof.roofline.analysis import StepTimes, Utilization
from gpuprof.roofline.ceilings import Roof
from gpuprof.roofline.work import Work


def utilization(work: Work, times: StepTimes, roof: Roof | None) -> Utilization | None:
    """MFU from matmul FLOPs of the profiled steps and the time of the unprofiled ones.

    None without timed steps or matmuls. The peak is that of the precision with most FLOPs.
    """
    if times.timed == 0 or times.median_ns is None:
        return None
    full, kept = 0, 0
    by_precision: dict[str, int] = {}
    for signature, calls in _calls(work).items():
        cost = work.signatures[signature].cost
        if cost is None or cost.flops is None:
            continue
        matmul = cost.matmul_flops() or 0
        kept += calls * matmul
        full += calls * (matmul if cost.full_attention_flops is None else cost.full_attention_flops)
        for part in cost.flops:
            if part.kind == "matmul":
                counted = by_precision.get(part.precision, 0)
                by_precision[part.precision] = counted + calls * part.count
    if full == 0:
        return None
    precision = max(by_precision, key=lambda name: by_precision[name])
    peak = roof.compute_rate("matmul", precision) if roof is not None else None
    model_flops, causal_flops = round(full / work.steps), round(kept / work.steps)
    step_s = times.median_ns / 1e9
    return Utilization(
        precision=precision,
        model_flops=model_flops,
        model_flops_causal=causal_flops,
        step_ns=times.median_ns,
        flops_per_s=model_flops / step_s,
        peak=peak,
        mfu=None if peak is None else model_flops / step_s / peak.rate,
        mfu_causal=None if peak is None else causal_flops / step_s / peak.rate,
    )


def _calls(work: Work) -> dict[int, int]:
    """Owner calls of each signature over all profiled steps."""
    owners = work.kernels.select("signature", "owner_id").drop_nulls().unique()
    return dict(owners.group_by("signature").len().iter_rows())
