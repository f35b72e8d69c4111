"""How near its peak the busiest unit of a launch came, where its work itself was not counted.

Nsight Compute's details page has no operations, and no section but the roofline's has peaks to
compare bytes with. It has throughputs, each the largest share of its own peak that a counter of the
SMs or of the memory reached: Speed of Light (Kernel Profiling Guide, Metrics Structure: throughput
metrics). A kernel at 87 % of SM throughput could take 13 % less at most, whatever its units did.
"""

from collections.abc import Mapping
from typing import Final

from gpuprof.roofline.cost_models.cost import PeakTime
from gpuprof.roofline.measured.submetrics import DURATION

_SM: Final = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
# Of all that moves data: DRAM, L2, L1, shared memory, and what issues to them.
_MEMORY: Final = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
_LEVELS: Final = {
    "DRAM": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
}
_THROUGHPUT: Final = " throughput"
# The details page prints two decimals.
_ROUNDED: Final = 0.01


def is_of_compute(label: str) -> bool | None:
    """Whether the roof called `label` is the SMs', or the memory's; None where it is neither."""
    name = label.partition(" (")[0]
    return None if not name.endswith(_THROUGHPUT) else name == f"SM{_THROUGHPUT}"


def peak_times(counters: Mapping[str, float]) -> tuple[PeakTime, ...]:
    """How long one launch would take with its SMs, and with its memory, at their peak.

    `counters` are metric -> value in base units. () where one of the two was not collected: the
    smaller one says nothing of a kernel.
    """
    duration_ns, sm = counters.get(DURATION), counters.get(_SM)
    levels = {name: counters[metric] for name, metric in _LEVELS.items() if metric in counters}
    memory = counters.get(_MEMORY, max(levels.values(), default=None))
    if duration_ns is None or sm is None or memory is None:
        return ()
    busiest = next((name for name in levels if levels[name] >= memory - _ROUNDED), "memory")
    return (
        PeakTime(resource="compute", name=f"SM{_THROUGHPUT}", ns=duration_ns * sm / 100),
        PeakTime(resource="memory", name=f"{busiest}{_THROUGHPUT}", ns=duration_ns * memory / 100),
    )
