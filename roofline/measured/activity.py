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

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.live.nvml.gpm import REFRESH_NS
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.activity_figures import Activity, Reconciliation
from gpuprof.roofline.analysis import Coverage, RooflinePoint, Utilization
from gpuprof.roofline.machine.ceilings import Ceiling, Roof
from gpuprof.roofline.measured.reconciliation import Compared, reconcile
from gpuprof.roofline.measured.tensor_work import product_kernels, tensor_ns
from gpuprof.roofline.measured.time_line import time_line
from gpuprof.roofline.measured.windows import LATE_NS, averages, windows_of, within
from gpuprof.roofline.step_figures import StepTimes
from gpuprof.roofline.steps.device_readings import device_readings
from gpuprof.roofline.steps.device_state import working_times
from gpuprof.roofline.work.work import Work

# DRAM's bytes may differ by so much from the models' without a reason.
_TOLERANCE: Final = 0.1
# Of normally distributed values: their interquartile range over their standard deviation.
_RANGE_OF_DEVIATION: Final = 1.349


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
    clock = _Clock.of(capture.samples.filter(pl.col("device") == index), inside)
    step_ns = float(np.mean([end - start for start, end in spans]))
    kept, full = _needed_of_tensor_cores(modelled, step_ns, clock)
    dram_bytes, modelled_bytes = _dram_bytes(dram, modelled, step_ns)
    lengths_ns = (inside["end_ns"] - inside["start_ns"]).to_numpy()
    reconciled = _reconciled(modelled, inside, tensor, clock, step_ns)
    return Activity(
        windows=inside.height,
        window_ns=round(float(np.median(lengths_ns))),
        covered_fraction=min(1.0, int(lengths_ns.sum()) / sum(end - start for start, end in spans)),
        sm_active=sm,
        tensor_active=tensor,
        modelled_tensor=kept,
        modelled_tensor_full=full,
        clock_mhz=None if clock is None else round(clock.mean_mhz),
        dram_active=dram,
        dram_bytes=dram_bytes,
        modelled_bytes=modelled_bytes,
        pcie_tx_bytes_per_s=rates["pcie_tx_bytes_per_s"],
        pcie_rx_bytes_per_s=rates["pcie_rx_bytes_per_s"],
        nvlink_tx_bytes_per_s=rates["nvlink_tx_bytes_per_s"],
        nvlink_rx_bytes_per_s=rates["nvlink_rx_bytes_per_s"],
        reconciled=reconciled,
        dram_reason=_dram_reason(dram_bytes, modelled_bytes, modelled.coverage),
        time_line=time_line(
            inside, timed["index"].to_list(), spans, device_readings(capture.samples, index)
        ),
    )


def _fraction(percentage: float | None) -> float | None:
    return None if percentage is None else percentage / 100


@dataclass(frozen=True)
class _Clock:
    """The SM clock in some windows, and how well its mean is known."""

    mean_mhz: float
    relative_error: float

    @classmethod
    def of(cls, samples: pl.DataFrame, windows: pl.DataFrame) -> "_Clock | None":
        """None where no sample in the windows has it.

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
        lengths = (windows["end_ns"] - windows["start_ns"]).to_numpy()
        refreshed = max(1, min(len(inside), int(lengths.sum()) // REFRESH_NS))
        return cls(mean, float(np.std(inside.to_numpy())) / math.sqrt(refreshed) / mean)


def _steps_needed(windows: pl.DataFrame, times: StepTimes) -> int | None:
    """Timed steps that hold a whole window wherever it begins.

    After the profiled steps counters are read more rarely, so the shortest window counts.
    """
    if not times.length_ns:
        return None
    window_ns = int((windows["end_ns"] - windows["start_ns"]).to_numpy().min())
    return math.ceil((2 * window_ns + LATE_NS) / times.length_ns)


def _needed_of_tensor_cores(
    modelled: ModelledStep, step_ns: float, clock: _Clock | None
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
    slower = 1.0 if clock is None or not promised else promised / clock.mean_mhz
    needed_ns = tensor_ns(modelled.products.items(), roof) * slower
    return needed_ns / step_ns, (needed_ns + tensor_ns(dropped.items(), roof) * slower) / step_ns


def _reconciled(
    modelled: ModelledStep,
    windows: pl.DataFrame,
    tensor_active: float | None,
    clock: _Clock | None,
    step_ns: float,
) -> Reconciliation | None:
    roof, shares = modelled.roof, modelled.shares
    if tensor_active is None or clock is None or roof is None or shares is None:
        return None
    if not modelled.comparable:
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
    error = math.hypot(
        _relative_error(windows["tensor_active_percent"], modelled.times), clock.relative_error
    )
    return reconcile(compared, tensor_active, clock.mean_mhz, error)


def _relative_error(activity_of_windows: pl.Series, times: StepTimes) -> float:
    """The standard error of the mean over windows; of a single one by how steps differ."""
    values = activity_of_windows.drop_nulls().to_numpy()
    if len(values) < 2:
        return (times.relative_spread or 0.0) / _RANGE_OF_DEVIATION
    mean = float(np.mean(values))
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) / mean if mean else 0.0


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


def _dram_reason(measured: int | None, modelled: int | None, coverage: Coverage) -> str:
    """Why DRAM moved more or fewer bytes than the models count once each."""
    if measured is None or not modelled or abs(measured - modelled) <= _TOLERANCE * modelled:
        return ""
    if measured < modelled:
        return "as where L2 keeps what one kernel leaves for the next"
    missing = 1 - (coverage.with_bytes if coverage.with_bytes is not None else 0.0)
    if missing >= _TOLERANCE / 2:
        return f"{missing:.0%} of device time has no byte model"
    return (
        "as where operands are read again, tile by tile, or lines in part: --counters tells of "
        "each kernel"
    )
