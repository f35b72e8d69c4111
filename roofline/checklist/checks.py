"""What counters of a kernel, or its launch alone, say of each thing that may slow it.

The gains follow the estimates of Nsight Compute's own rules (2025.3: CPIStall.py,
AchievedOccupancy.py, UncoalescedAccess.py, ThreadDivergence.py, WorkloadImbalance.py), and are
upper bounds as those are. docs/numbers.md has the formulas.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpuprof.roofline.checklist_figures import CheckedValue, KernelCheck
from gpuprof.roofline.measured.levels import level_traffic
from gpuprof.roofline.measured.metric_table import metric_table
from gpuprof.roofline.points.grid import idle_fraction

_ISSUE: Final = "smsp__issue_active.avg.per_cycle_active"
_LATENCY: Final = "smsp__average_warp_latency_per_inst_issued.ratio"
_REACHED: Final = "sm__warps_active.avg.pct_of_peak_sustained_active"
_POSSIBLE: Final = "sm__maximum_warps_per_active_cycle_pct"
_THREADS: Final = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
_ACTIVE: Final = "sm__cycles_active"
_ELAPSED: Final = "sm__cycles_elapsed.max"
_SMS: Final = "launch__sm_count"
_WAVEFRONTS: Final = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_CONFLICTS: Final = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_L2_ACTIVE: Final = "lts__cycles_active.avg"
_L2_ELAPSED: Final = "lts__cycles_elapsed.avg"
_THROUGHPUTS: Final = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
)
_WARP: Final = 32
_SECTOR_BYTES: Final = 32
# In these a warp does not wait for anything.
_NO_STALLS: Final = ("selected", "not_selected")
# Below this share of a warp's time no reason is the one that matters (CPIStall.py).
_LEAST_STALL: Final = 0.3
# Above this share of cycles with an instruction waiting warps are no loss (CPIStall.py).
_MOST_ISSUE: Final = 0.8
_DIRECTIONS: Final = (("load", "ld"), ("store", "st"))


@dataclass(frozen=True)
class LaunchFacts:
    """What a trace tells of a launch; None where it does not."""

    # Share of a multiprocessor's warps that its blocks can fill.
    occupancy: float | None = None
    blocks: int | None = None
    multiprocessors: int | None = None
    waves: float | None = None


def checks_of(
    counters: Mapping[str, float], launch: LaunchFacts, above_roof: float | None
) -> tuple[KernelCheck, ...]:
    """The checks of one kernel; those of which nothing is known are left out.

    `counters` are metric -> value in base units of one launch, or means of several; {} where none
    was counted. `above_roof` is the share of its time above the roof, None where that is unknown.
    """
    found = (
        _occupancy(counters, launch),
        _stalls(counters),
        _coalescing(counters),
        _bank_conflicts(counters),
        _divergence(counters),
        _tail(counters, launch),
    )
    return tuple(_within(check, above_roof) for check in found if check is not None)


def _within(check: KernelCheck, above_roof: float | None) -> KernelCheck:
    if check.gain_fraction is None or above_roof is None:
        return check
    return KernelCheck(
        subject=check.subject,
        values=check.values,
        source=check.source,
        gain_fraction=min(check.gain_fraction, max(above_roof, 0.0)),
    )


def _idle(counters: Mapping[str, float]) -> float:
    """What less waiting can gain at most: the share of cycles without an instruction, and what the
    busiest unit has left where that was counted."""
    busiest = [counters[metric] / 100 for metric in _THROUGHPUTS if metric in counters]
    left = 1 - max(busiest) if len(busiest) == len(_THROUGHPUTS) else 1.0
    return max(0.0, min(1 - counters.get(_ISSUE, 0.0), left))


def _occupancy(counters: Mapping[str, float], launch: LaunchFacts) -> KernelCheck | None:
    """(possible - reached) / possible, at most what is idle."""
    possible, reached = _share(counters, _POSSIBLE), _share(counters, _REACHED)
    if possible is None:
        possible = launch.occupancy
    if possible is None:
        return None
    allowed = CheckedValue("possible by its launch", possible, "%")
    if not possible or reached is None:
        return KernelCheck(subject="occupancy", values=(allowed,), source="launch")
    missing = max(0.0, (possible - reached) / possible)
    return KernelCheck(
        subject="occupancy",
        values=(CheckedValue("reached", reached, "%"), allowed),
        source="counters",
        gain_fraction=min(missing, _idle(counters)),
    )


def _stalls(counters: Mapping[str, float]) -> KernelCheck | None:
    """The share of a warp's time that it waits for the main reason, at most what is idle."""
    stalls = {
        stall: counters[stall.metric]
        for stall in metric_table().stall
        if stall.metric in counters and stall.reason not in _NO_STALLS
    }
    latency, issue = counters.get(_LATENCY), counters.get(_ISSUE)
    if not stalls or not latency or issue is None:
        return None
    shares = sorted(
        ((cycles / latency, stall.meaning) for stall, cycles in stalls.items()), reverse=True
    )
    largest = shares[0][0]
    matters = largest >= _LEAST_STALL and issue < _MOST_ISSUE
    return KernelCheck(
        subject="stalls",
        values=(
            *(
                CheckedValue(f"of a warp's time waiting for {meaning}", share, "%")
                for share, meaning in shares[:2]
            ),
            CheckedValue("of cycles with an instruction", issue, "%"),
        ),
        source="counters",
        gain_fraction=min(largest, _idle(counters)) if matters else 0.0,
    )


def _coalescing(counters: Mapping[str, float]) -> KernelCheck | None:
    """The share of L2's traffic that are bytes of sectors that nobody asked for, in the share of
    time that L2 works. Copies that bypass registers (LDGSTS, TMA) have no such bytes counted."""
    sectors = wasted = 0.0
    for _, operation in _DIRECTIONS:
        moved, used = _sectors(counters, operation), _used_bytes(counters, operation)
        if moved is None or (moved and not used):
            return None
        sectors += moved
        wasted += moved * (1 - min((used or 0.0) / _SECTOR_BYTES, 1.0))
    active, elapsed = counters.get(_L2_ACTIVE), counters.get(_L2_ELAPSED)
    traffic = level_traffic(counters).get("L2")
    if not sectors or traffic is None or active is None or not elapsed:
        return None
    # What no load or store of registers moves is of the traffic too.
    share = wasted / max(sectors, traffic.bytes_moved / _SECTOR_BYTES)
    return KernelCheck(
        subject="coalescing",
        values=tuple(_accesses(counters)),
        source="counters",
        gain_fraction=share * min(active / elapsed, 1.0),
    )


def _accesses(counters: Mapping[str, float]) -> Iterator[CheckedValue]:
    for name, operation in _DIRECTIONS:
        moved, used = _sectors(counters, operation), _used_bytes(counters, operation)
        requests = counters.get(f"l1tex__t_requests_pipe_lsu_mem_global_op_{operation}.sum")
        if moved and used is not None:
            yield CheckedValue(f"used of each 32-byte sector that a {name} moves", used, "bytes")
        if moved and requests:
            yield CheckedValue(f"for each {name} request", moved / requests, "sectors")


def _sectors(counters: Mapping[str, float], operation: str) -> float | None:
    return counters.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{operation}.sum")


def _used_bytes(counters: Mapping[str, float], operation: str) -> float | None:
    return counters.get(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{operation}.ratio")


def _bank_conflicts(counters: Mapping[str, float]) -> KernelCheck | None:
    """Each takes the data pipe of L1 for a cycle, of the cycles that all SMs have."""
    conflicts, wavefronts = counters.get(_CONFLICTS), counters.get(_WAVEFRONTS)
    cycles, sms = counters.get(_ELAPSED), counters.get(_SMS)
    if conflicts is None or not wavefronts or not cycles or not sms:
        return None
    share = min(conflicts / (cycles * sms), 1.0)
    return KernelCheck(
        subject="bank conflicts",
        values=(
            CheckedValue(
                "of shared memory's wavefronts are conflicts", conflicts / wavefronts, "%"
            ),
            CheckedValue("of the SMs' cycles take them", share, "%"),
        ),
        source="counters",
        gain_fraction=share,
    )


def _divergence(counters: Mapping[str, float]) -> KernelCheck | None:
    """The share of threads that an instruction does not work for, in cycles with one."""
    threads, issue = counters.get(_THREADS), counters.get(_ISSUE)
    if threads is None or issue is None:
        return None
    return KernelCheck(
        subject="divergence",
        values=(CheckedValue("of 32 threads work in an instruction", threads),),
        source="counters",
        gain_fraction=(1 - min(threads / _WARP, 1.0)) * min(issue, 1.0),
    )


def _tail(counters: Mapping[str, float], launch: LaunchFacts) -> KernelCheck | None:
    """How much sooner the busiest multiprocessor were done with equal shares.

    By the launch alone, what its blocks leave idle at least.
    """
    waves = () if launch.waves is None else (CheckedValue("waves", launch.waves),)
    mean, most = (counters.get(f"{_ACTIVE}.{submetric}") for submetric in ("avg", "max"))
    elapsed = counters.get(_ELAPSED)
    if mean is not None and most and elapsed:
        return KernelCheck(
            subject="tail",
            values=(
                CheckedValue("of the busiest SM's time worked by SMs on average", mean / most, "%"),
                *waves,
            ),
            source="counters",
            gain_fraction=(1 - mean / most) * min(most / elapsed, 1.0),
        )
    if not launch.blocks or not launch.multiprocessors:
        return None
    idle = idle_fraction(launch.blocks, launch.multiprocessors)
    return KernelCheck(
        subject="tail",
        values=(CheckedValue("of the SMs' time with a block at most", 1 - idle, "%"), *waves),
        source="launch",
        gain_fraction=idle,
    )


def _share(counters: Mapping[str, float], metric: str) -> float | None:
    percent = counters.get(metric)
    return None if percent is None else percent / 100
