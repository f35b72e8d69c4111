"""Tensor and DRAM activity that NVML's GPM counted while steps were timed, beside the models.

GPM's rates are averages from one reading of its counters to the next, of the whole device and
without replaying or slowing anything.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.live.nvml.gpm import REFRESH_NS
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.activity_figures import Activity, Reconciliation
from gpuprof.roofline.analysis import Coverage, RooflinePoint, Utilization
from gpuprof.roofline.machine.ceilings import Ceiling, Roof
from gpuprof.roofline.measured.reconciliation import Compared, Estimate, reconcile
from gpuprof.roofline.measured.tensor_work import product_kernels, tensor_ns
from gpuprof.roofline.measured.time_line import time_line
from gpuprof.roofline.measured.windows import LATE_NS, averages, windows_of, within
from gpuprof.roofline.step_figures import StepTimes
from gpuprof.roofline.steps.device_readings import device_readings
from gpuprof.roofline.steps.device_state import working_times
from gpuprof.roofline.work.work import Work

# DRAM's counted bytes agree with those of a long copy within this (0.1 % to 2 % on an H200).
_DRAM_TOLERANCE: Final = 0.05
# Of device time without a byte model: less of it is no reason.
_WORTH_A_REASON: Final = 0.05


@dataclass(frozen=True)
class ModelledStep:
    """What is known of a step without the device's counters."""

    times: StepTimes
    ceilings: Sequence[Ceiling]
    # The work of all profiled steps, by kernel and in one point, and how much of it has models.
    work: Work
    whole: RooflinePoint | None
    shares: Utilization | None
    coverage: Coverage
    device: Device
    # That the process used.
    devices: int
    # Others whose kernels ran on the device; 0 where that is not known.
    other_processes: int = 0

    @property
    def comparable(self) -> bool:
        """Whether its work is that of a timed step of this device, and of no other."""
        return self.devices == 1 and not self.times.unequal

    @cached_property
    def roof(self) -> Roof | None:
        """The datasheet's: activity is of what the units can do, not of what was reached."""
        datasheet = tuple(each for each in self.ceilings if each.source == "datasheet")
        return Roof(datasheet, "datasheet") if datasheet else None

    @cached_property
    def products(self) -> Counter[str]:
        """Matrix FLOPs of one step by precision: attention by what its mask keeps."""
        counts: Counter[str] = Counter()
        for part in (self.whole.flops if self.whole else None) or ():
            if part.kind == "matmul":
                counts[part.precision] += part.count
        steps = max(self.times.profiled, 1)
        return Counter({name: round(count / steps) for name, count in counts.items()})


def activity(capture: Capture, modelled: ModelledStep) -> Activity | None:
    """What GPM counted of the device in the timed steps of a one-rank capture.

    None where it counted nothing at all, or no step was timed.
    """
    index = modelled.device.index
    windows = windows_of(capture.samples.filter(pl.col("device") == index))
    timed = capture.steps.filter(pl.col("phase") == "timed").sort("start_ns")
    spans = working_times(timed)
    if windows.is_empty() or not spans:
        return None
    inside = within(windows, spans)
    if inside.is_empty():
        return Activity(windows=0, steps_needed=_steps_needed(windows, modelled.times))
    rates = averages(inside)
    sm, tensor, dram = (
        _fraction(rates[f"{unit}_active_percent"]) for unit in ("sm", "tensor", "dram")
    )
    clock = _clock_in(capture.samples.filter(pl.col("device") == index), inside)
    lengths_ns = np.array([end - start for start, end in spans], np.float64)
    step_ns = float(np.mean(lengths_ns))
    kept, full = _needed_of_tensor_cores(modelled, step_ns, clock)
    dram_bytes, modelled_bytes = _dram_bytes(dram, modelled, step_ns)
    dram_uncertainty = None
    if dram:
        of_models = dram * (modelled_bytes or 0) / dram_bytes if dram_bytes else 0.0
        error = _error(inside, "dram_active_percent", of_models, lengths_ns)
        dram_uncertainty = max(_DRAM_TOLERANCE, 2 * error / dram)
    counted_ns = (inside["end_ns"] - inside["start_ns"]).to_numpy()
    reconciled = None
    if tensor is not None and clock is not None and kept is not None:
        error = _error(inside, "tensor_active_percent", kept, lengths_ns)
        reconciled = _reconciled(modelled, Estimate(tensor, error), clock, step_ns)
    return Activity(
        windows=inside.height,
        window_ns=round(float(np.median(counted_ns))),
        covered_fraction=min(1.0, float(counted_ns.sum() / lengths_ns.sum())),
        sm_active=sm,
        tensor_active=tensor,
        modelled_tensor=kept,
        modelled_tensor_full=full,
        clock_mhz=None if clock is None else round(clock.value),
        dram_active=dram,
        dram_bytes=dram_bytes,
        modelled_bytes=modelled_bytes,
        pcie_tx_bytes_per_s=rates["pcie_tx_bytes_per_s"],
        pcie_rx_bytes_per_s=rates["pcie_rx_bytes_per_s"],
        nvlink_tx_bytes_per_s=rates["nvlink_tx_bytes_per_s"],
        nvlink_rx_bytes_per_s=rates["nvlink_rx_bytes_per_s"],
        reconciled=reconciled,
        dram_uncertainty=dram_uncertainty,
        dram_reason=_dram_reason(dram_bytes, modelled_bytes, dram_uncertainty, modelled.coverage),
        time_line=time_line(
            inside, timed["index"].to_list(), spans, device_readings(capture.samples, index)
        ),
    )


def _fraction(percentage: float | None) -> float | None:
    return None if percentage is None else percentage / 100


def _clock_in(samples: pl.DataFrame, windows: pl.DataFrame) -> Estimate | None:
    """The mean SM clock in `windows`, in MHz; None where no sample in them has it.

    NVML refreshes a reading no more often than its counters: samples between are copies.
    """
    ordered = windows.sort("start_ns")
    starts, ends = (ordered[name].to_numpy() for name in ("start_ns", "end_ns"))
    time_ns = samples["time_ns"].to_numpy()
    window = np.searchsorted(starts, time_ns, side="right") - 1
    within_one = (window >= 0) & (time_ns <= ends[window])
    inside = samples["sm_clock_mhz"].filter(pl.Series(within_one)).drop_nulls()
    mean = inside.mean()
    if not isinstance(mean, float) or not mean:
        return None
    refreshed = max(1, min(len(inside), int((ends - starts).sum()) // REFRESH_NS))
    return Estimate(mean, float(np.std(inside.to_numpy())) / math.sqrt(refreshed))


def _steps_needed(windows: pl.DataFrame, times: StepTimes) -> int | None:
    """Timed steps that hold a whole window wherever it begins.

    After the profiled steps counters are read more rarely, so the shortest window counts.
    """
    if not times.length_ns:
        return None
    window_ns = int((windows["end_ns"] - windows["start_ns"]).to_numpy().min())
    return math.ceil((2 * window_ns + LATE_NS) / times.length_ns)


def _needed_of_tensor_cores(
    modelled: ModelledStep, step_ns: float, clock: Estimate | None
) -> tuple[float | None, float | None]:
    """Of a step, what its products take at the tensor units' peaks; with all that masks drop too.

    Activity counts cycles, so the peaks are those at the clock that ran.
    """
    roof, shares = modelled.roof, modelled.shares
    if roof is None or modelled.whole is None or modelled.whole.flops is None:
        return None, None
    if not modelled.comparable:
        return None, None
    dropped: Counter[str] = Counter()
    if shares is not None and shares.hardware_flops is not None:
        kept = shares.hardware_flops_causal
        dropped[shares.precision] = 0 if kept is None else shares.hardware_flops - kept
    peaks = [roof.compute_rate("matmul", name) for name in modelled.products]
    promised = next((peak.clock_mhz for peak in peaks if peak and peak.unit == "tensor"), None)
    slower = 1.0 if clock is None or not promised else promised / clock.value
    needed_ns = tensor_ns(modelled.products.items(), roof) * slower
    return needed_ns / step_ns, (needed_ns + tensor_ns(dropped.items(), roof) * slower) / step_ns


def _reconciled(
    modelled: ModelledStep, tensor_active: Estimate, clock: Estimate, step_ns: float
) -> Reconciliation | None:
    roof, shares = modelled.roof, modelled.shares
    if roof is None or shares is None or not modelled.comparable:
        return None
    compared = Compared(
        shares=shares,
        roof=roof,
        kernels=product_kernels(modelled.work, roof),
        products=modelled.products,
        needed_ns=tensor_ns(modelled.products.items(), roof),
        step_ns=step_ns,
        without_flops=modelled.coverage.without_flops,
        compute_capability=modelled.device.compute_capability,
        other_processes=modelled.other_processes,
    )
    return reconcile(compared, tensor_active, clock)


def _error(
    windows: pl.DataFrame, rate: str, expected: float, lengths_ns: NDArray[np.float64]
) -> float:
    """The standard error of the mean of `rate`, a percentage, over `windows`, as a fraction of 1.

    No less than what whole steps of the lengths that were timed can make of the time T that the
    windows cover: it holds more or fewer of them where their lengths differ, by their relative
    deviation over the root of how many (renewal theory), and its ends cut steps: work that fills a
    share a of a step of length S is then up to a (1 - a) S / T more or less, which is taken for two
    errors. `expected` is a by the models, as windows may have missed the work.
    """
    values = windows[rate].drop_nulls().to_numpy() / 100
    if not len(values):
        return 0.0
    step_ns = float(np.mean(lengths_ns))
    steps = int((windows["end_ns"] - windows["start_ns"]).sum()) / step_ns
    share = min(1.0, max(float(np.mean(values)), expected))
    differing = share * float(np.std(lengths_ns)) / step_ns / math.sqrt(steps)
    least = math.hypot(differing, share * (1 - share) / steps / 2)
    if len(values) < 2:
        return least
    return max(least, float(np.std(values, ddof=1)) / math.sqrt(len(values)))


def _dram_bytes(
    active: float | None, modelled: ModelledStep, step_ns: float
) -> tuple[int | None, int | None]:
    work, times = modelled.whole, modelled.times
    peak = None if modelled.roof is None else modelled.roof.memory_rate()
    counted = by_models = None
    if active is not None and peak is not None:
        counted = round(active * peak.rate * step_ns / 1e9)
    if not modelled.comparable or work is None:
        return counted, None
    if work.bytes_read is not None and work.bytes_written is not None:
        by_models = round((work.bytes_read + work.bytes_written) / max(times.profiled, 1))
    return counted, by_models


def _dram_reason(
    measured: int | None, modelled: int | None, uncertainty: float | None, coverage: Coverage
) -> str:
    """Why DRAM moved more or fewer bytes than the models count once each."""
    if measured is None or not modelled or uncertainty is None:
        return ""
    if abs(measured - modelled) <= uncertainty * measured:
        return ""
    if measured < modelled:
        return "as where L2 keeps what one kernel leaves for the next"
    missing = 1 - (coverage.with_bytes if coverage.with_bytes is not None else 0.0)
    if missing >= _WORTH_A_REASON:
        return f"{missing:.0%} of device time has no byte model"
    return (
        "as where operands are read again, tile by tile, or lines in part: --counters tells of "
        "each kernel"
    )
