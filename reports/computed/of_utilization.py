"""How MFU, HFU, MBU and OFU are computed."""

import math

from gpuprof.reports.computation import Computation
from gpuprof.reports.computed.formulas import computation, seconds
from gpuprof.roofline.activity_figures import Reconciliation
from gpuprof.roofline.analysis import Utilization
from gpuprof.roofline.machine.ceilings import Ceiling

# A share is shown where the inputs give it to so many digits: devices of one process may differ.
_CLOSE = 1e-6


def of_flop_utilization(
    name: str, utilization: Utilization, flops: int, peak: Ceiling, share: float
) -> Computation | None:
    """Of one that is `flops` of a step over `peak`: a row of formulas.toml; None where the peaks of
    several devices differ."""
    possible = utilization.devices * peak.rate * seconds(utilization.step_ns)
    if not math.isclose(flops / possible, share, rel_tol=_CLOSE):
        return None
    return computation(
        name, F=flops, n=utilization.devices, P=peak.rate, T=seconds(utilization.step_ns)
    )


def of_memory_utilization(utilization: Utilization, peak: Ceiling) -> Computation | None:
    """Of MBU; None where the bandwidths of several devices differ."""
    weights, keys_values = utilization.weight_bytes or 0, utilization.key_value_bytes or 0
    possible = utilization.devices * peak.rate * seconds(utilization.step_ns)
    share = utilization.mbu
    if share is None or not math.isclose((weights + keys_values) / possible, share, rel_tol=_CLOSE):
        return None
    return computation(
        "MBU",
        W=weights,
        K=keys_values,
        n=utilization.devices,
        B=peak.rate,
        T=seconds(utilization.step_ns),
    )


def of_ofu(reconciled: Reconciliation, tensor_active: float) -> Computation:
    """Of what the device counted."""
    return computation("OFU", a=tensor_active, f=reconciled.clock_mhz, p=reconciled.peak_clock_mhz)
