"""Tensor and DRAM activity that NVML's GPM counted while steps were timed, beside the models.

GPM's rates are averages from one reading of its counters to the next, of the whole device and
without replaying or slowing anything. A window counts where it lies whole in the timed steps.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.activity_figures import Activity
from gpuprof.roofline.analysis import Coverage, DeviceState, RooflinePoint, Utilization
from gpuprof.roofline.intervals import covered_ns, merged
from gpuprof.roofline.kernel_names.decode import decode
from gpuprof.roofline.machine.ceilings import Ceiling, Roof, at_clock
from gpuprof.roofline.step_figures import StepTimes
from gpuprof.roofline.steps.device_state import working_times

_RATES: Final = (
    *("tensor_active_percent", "dram_active_percent"),
    *("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    *("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
)
# PCIe is also read without GPM, at one moment.
_OF_GPM: Final = tuple(name for name in _RATES if not name.startswith("pcie"))
# Of a window: what may lie between timed steps, whose events are read in batches.
_BETWEEN: Final = 0.02
# Differences up to this need no reason.
_TOLERANCE: Final = 0.1
# GPM counts cycles in which a tensor core does anything at all: products of 8192 by cuBLAS, whole
# tiles each, keep them active 1.11 times as long as their FLOPs need at the peak rate (H200).
_ACTIVE_OF_NEEDED: Final = 1.2


@dataclass(frozen=True)
class ModelledStep:
    """What is known of a step without the device's counters."""

    times: StepTimes
    state: DeviceState | None
    ceilings: Sequence[Ceiling]
    # The work of all profiled steps, and how much of it has models.
    work: RooflinePoint | None
    shares: Utilization | None
    coverage: Coverage
    kernels: Sequence[RooflinePoint]
    device: Device
    # That the process used.
    devices: int

    @property
    def comparable(self) -> bool:
        """Whether its work is that of a timed step of this device, and of no other."""
        return self.devices == 1 and not self.times.unequal

    @property
    def clock_mhz(self) -> int | None:
        """The SM clock while steps were timed."""
        return None if self.state is None else self.state.sm_clock_mhz_median

    @property
    def roof(self) -> Roof | None:
        """The datasheet's: activity is of what the units can do, not of what was reached."""
        datasheet = tuple(each for each in self.ceilings if each.source == "datasheet")
        return Roof(datasheet, "datasheet") if datasheet else None


def activity(capture: Capture, modelled: ModelledStep) -> Activity | None:
    """What GPM counted of the device in the timed steps of a one-rank capture.

    None where it counted nothing at all, or no step was timed.
    """
    windows = _windows(capture.samples.filter(pl.col("device") == modelled.device.index))
    if windows.is_empty():
        return None
    spans = working_times(capture.steps.filter(pl.col("phase") == "timed"))
    if not spans:
        return None
    inside = _within(windows, spans)
    if inside.is_empty():
        return Activity(windows=0, steps_needed=_steps_needed(windows, modelled.times))
    rates = _averages(inside)
    tensor, dram = (_fraction(rates[name]) for name in _RATES[:2])
    kept, full = _modelled_tensor(modelled)
    dram_bytes, modelled_bytes = _dram_bytes(dram, modelled)
    lengths_ns = (inside["end_ns"] - inside["start_ns"]).to_numpy()
    return Activity(
        windows=inside.height,
        window_ns=round(float(np.median(lengths_ns))),
        covered_fraction=min(1.0, int(lengths_ns.sum()) / sum(end - start for start, end in spans)),
        tensor_active=tensor,
        modelled_tensor=kept,
        modelled_tensor_full=full,
        clock_mhz=modelled.clock_mhz,
        dram_active=dram,
        dram_bytes=dram_bytes,
        modelled_bytes=modelled_bytes,
        pcie_tx_bytes_per_s=rates["pcie_tx_bytes_per_s"],
        pcie_rx_bytes_per_s=rates["pcie_rx_bytes_per_s"],
        nvlink_tx_bytes_per_s=rates["nvlink_tx_bytes_per_s"],
        nvlink_rx_bytes_per_s=rates["nvlink_rx_bytes_per_s"],
        tensor_reason=_tensor_reason(tensor, kept, full, modelled),
        dram_reason=_dram_reason(dram_bytes, modelled_bytes, modelled.coverage),
    )


def _fraction(percentage: float | None) -> float | None:
    return None if percentage is None else percentage / 100


def _windows(samples: pl.DataFrame) -> pl.DataFrame:
    """The rows of `samples`, of one device, that hold rates of GPM, with start_ns and end_ns.

    The first of them is left out: when its window began was not recorded.
    """
    counted = samples.filter(pl.any_horizontal(pl.col(_OF_GPM).is_not_null())).sort("time_ns")
    return counted.with_columns(
        start_ns=pl.col("time_ns").shift(1), end_ns=pl.col("time_ns")
    ).filter(pl.col("start_ns") < pl.col("end_ns"))


def _within(windows: pl.DataFrame, spans: Sequence[tuple[int, int]]) -> pl.DataFrame:
    working = merged(*np.array(spans, np.int64).T)
    start, end = (windows[name].to_numpy() for name in ("start_ns", "end_ns"))
    covered = covered_ns(working, end) - covered_ns(working, start)
    return windows.filter(pl.Series(covered >= (1 - _BETWEEN) * (end - start)))


def _averages(windows: pl.DataFrame) -> Mapping[str, float | None]:
    """Of each rate, weighted by the windows' lengths."""
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    averages = windows.select(
        ((pl.col(name) * length).sum() / length.filter(pl.col(name).is_not_null()).sum()).alias(
            name
        )
        for name in _RATES
    ).row(0, named=True)
    return {
        name: None if value is None or math.isnan(value) else float(value)
        for name, value in averages.items()
    }


def _steps_needed(windows: pl.DataFrame, times: StepTimes) -> int | None:
    """Timed steps that hold a whole window wherever it begins.

    After the profiled steps counters are read more rarely, so the shortest window counts.
    """
    if not times.length_ns:
        return None
    window_ns = int((windows["end_ns"] - windows["start_ns"]).to_numpy().min())
    return math.ceil(2 * window_ns / times.length_ns)


def _modelled_tensor(modelled: ModelledStep) -> tuple[float | None, float | None]:
    """Of a step, what its products take at the tensor units' peaks; with all that masks drop too.

    Activity counts cycles, so the peaks are those at the clock that ran.
    """
    work, times, roof = modelled.work, modelled.times, modelled.roof
    if roof is None or work is None or work.flops is None or not times.length_ns:
        return None, None
    if not modelled.comparable:
        return None, None
    seconds = dropped_s = 0.0
    shares = modelled.shares
    for part in work.flops:
        peak = roof.compute_rate("matmul", part.precision) if part.kind == "matmul" else None
        if peak is None or peak.unit != "tensor":
            continue
        rate = (at_clock(peak, modelled.clock_mhz) or peak).rate
        seconds += part.count / max(times.profiled, 1) / rate
        if shares is not None and shares.precision == part.precision:
            causal = shares.hardware_flops_causal or 0
            dropped_s = ((shares.hardware_flops or causal) - causal) / rate
    step_s = times.length_ns / 1e9
    return seconds / step_s, (seconds + dropped_s) / step_s


def _dram_bytes(active: float | None, modelled: ModelledStep) -> tuple[int | None, int | None]:
    work, times = modelled.work, modelled.times
    peak = None if modelled.roof is None else modelled.roof.memory_rate()
    counted = by_models = None
    if active is not None and peak is not None and times.length_ns:
        counted = round(active * peak.rate * times.length_ns / 1e9)
    if not modelled.comparable or work is None:
        return counted, None
    if work.bytes_read is not None and work.bytes_written is not None:
        by_models = round((work.bytes_read + work.bytes_written) / max(times.profiled, 1))
    return counted, by_models


def _tensor_reason(
    active: float | None, kept: float | None, full: float | None, modelled: ModelledStep
) -> str:
    """Why tensor cores were active for longer or less long than the products need."""
    if active is None or kept is None or full is None or not kept:
        return ""
    if (1 - _TOLERANCE) * kept <= active <= _ACTIVE_OF_NEEDED * full:
        return ""
    if active < kept:
        return (
            "no reason is known; algorithms with fewer products than the formula counts do that "
            "(Winograd, FFT, sparsity)"
        )
    return (
        _unmodelled(modelled.coverage.with_flops, "FLOP")
        or _older_kernels(modelled)
        or "no reason is known; tiles that reach beyond their matrices do that, and algorithms "
        "with more products"
    )


def _older_kernels(modelled: ModelledStep) -> str:
    """Where products run in kernels for earlier architectures, whose instructions are slower.

    On an H200 those of sm75 keep tensor cores active 2.2 times as long for the same products.
    """
    capability = modelled.device.compute_capability or ""
    own = capability.partition(".")[0]
    times_ns: Counter[str] = Counter()
    for kernel in modelled.kernels:
        if any(part.kind == "matmul" for part in kernel.flops or ()):
            decoded = decode(kernel.name)
            times_ns[decoded.architecture if decoded else ""] += kernel.device_ns
    older = {
        name: nanoseconds
        for name, nanoseconds in times_ns.items()
        if own.isdigit() and name.startswith("sm") and _major(name) < int(own)
    }
    share = sum(older.values()) / max(1, sum(times_ns.values()))
    if share < _TOLERANCE:
        return ""
    names = " and ".join(sorted(older))
    return (
        f"{share:.0%} of the products' time is in kernels for {names}, whose instructions use "
        "these tensor cores at a part of their rate"
    )


def _major(architecture: str) -> int:
    """Of "sm90" or "sm100": all digits but the last."""
    digits = "".join(filter(str.isdigit, architecture))
    return int(digits[:-1] or 0)


def _dram_reason(measured: int | None, modelled: int | None, coverage: Coverage) -> str:
    """Why DRAM moved more or fewer bytes than the models count once each."""
    if measured is None or not modelled or abs(measured - modelled) <= _TOLERANCE * modelled:
        return ""
    if measured < modelled:
        return "as where L2 keeps what one kernel leaves for the next"
    return _unmodelled(coverage.with_bytes, "byte") or (
        "as where operands are read again, tile by tile, or lines in part: --counters tells of "
        "each kernel"
    )


def _unmodelled(with_model: float | None, model: str) -> str:
    missing = 1 - (with_model if with_model is not None else 0.0)
    if missing < _TOLERANCE / 2:
        return ""
    return f"{missing:.0%} of device time has no {model} model"
