"""Ceilings: what a device can do at most, each with where the figure comes from.

Datasheet peaks, rates measured here and peaks of hardware counters never meet in one percentage: an
analysis picks one source (`roof_source`) and takes every percentage against that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Final, Literal

import msgspec

from gpuprof.collectors.manifest import Calibration, MeasuredCeiling
from gpuprof.roofline.cost_models.cost import FlopKind
from gpuprof.roofline.machine.devices import DeviceSpec, find_spec

# datasheet: what the vendor promises. measured: reached here by gpuprof calibrate. counters: the
# peak of a hardware counter at the clock that Nsight Compute saw.
Source = Literal["datasheet", "measured", "counters"]
# Levels of links, the one that is looked for first in front: between devices, and to and from the
# host by direction.
DEVICE_LINKS: Final = ("NVLink", "Infinity Fabric", "peer")
HOST_LINKS: Final = {
    "host to device": ("PCIe h2d", "PCIe", "NVLink-C2C"),
    "device to host": ("PCIe d2h", "PCIe", "NVLink-C2C"),
}
Unit = Literal["tensor", "vector"]

_COMPUTED_IN_FP32 = frozenset({"fp16", "bf16", "fp8", "fp4", "tf32"})


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """One roof. Compute: FLOP/s of a unit in a precision; memory: bytes/s of a level; link:
    bytes/s one way."""

    kind: Literal["compute", "memory", "link"]
    rate: float
    source: Source
    # A page, document or, for measured ones, the method.
    reference: str
    unit: Unit | None = None
    precision: str | None = None
    level: str | None = None
    # The SM clock that a datasheet's peak assumes, or at which a rate was measured.
    clock_mhz: int | None = None
    # (maximum - minimum) / median of the repeats of a measured rate.
    spread: float | None = None
    # Of a link: what a copy takes however small it is; its roof is this and its bytes at the rate.
    # Of a level of memory: what one load takes that waits for the one before.
    latency_ns: float | None = None
    # Of a cache: what it holds. Work on less data than that may find it there.
    capacity_bytes: int | None = None
    # Of a measured rate, for people: with how many threads, beside how much other work, and when.
    conditions: str = ""

    def link_ns(self, link_bytes: float, calls: int) -> float:
        """The least time in which `calls` transfers move so many bytes in all over this link."""
        return calls * (self.latency_ns or 0.0) + link_bytes / self.rate * 1e9

    @property
    def label(self) -> str:
        """For people: "bf16 tensor (datasheet, dense)", "DRAM (measured)"."""
        if self.kind != "compute" or self.precision is None:
            return f"{self.level} ({self.source})"
        dense = "" if self.source == "measured" else ", dense"
        return f"{self.precision} {self.unit} ({self.source}{dense})"


@dataclass(frozen=True)
class Roof:
    """The ceilings of one source, asked for by kind of work.

    None answers mean that this source has no figure, so no percentage can be taken.
    """

    ceilings: tuple[Ceiling, ...]
    source: Source

    def __post_init__(self) -> None:
        if any(ceiling.source != self.source for ceiling in self.ceilings):
            raise ValueError(f"a roof of {self.source} ceilings got one of another source")

    # These are asked for once for each kind of work, of which a trace has thousands.
    @cached_property
    def _of_units(self) -> dict[tuple[str | None, str | None], Ceiling]:
        """The first ceiling of each unit and precision."""
        compute = (ceiling for ceiling in reversed(self.ceilings) if ceiling.kind == "compute")
        return {(ceiling.unit, ceiling.precision): ceiling for ceiling in compute}

    @cached_property
    def _of_levels(self) -> dict[str | None, Ceiling]:
        """The first ceiling of each level of memory."""
        memory = (ceiling for ceiling in reversed(self.ceilings) if ceiling.kind == "memory")
        return {ceiling.level: ceiling for ceiling in memory}

    @cached_property
    def _of_memory(self) -> tuple[Ceiling, ...]:
        """The ceilings of memory, the highest first."""
        memory = (ceiling for ceiling in self.ceilings if ceiling.kind == "memory")
        return tuple(sorted(memory, key=lambda ceiling: -ceiling.rate))

    def compute_rate(self, kind: FlopKind, precision: str) -> Ceiling | None:
        """The ceiling of work of `kind` in `precision`.

        A matmul runs on the tensor unit where the device has one for that precision, else on the
        vector unit in the same precision. Vector work in 16 bits and less is computed in fp32 by
        torch's kernels (they load, convert, and store), so the fp32 vector ceiling is its roof.
        """
        if kind == "matmul":
            tensor = self._compute("tensor", precision)
            return tensor if tensor is not None else self._compute("vector", precision)
        return self._compute("vector", "fp32" if precision in _COMPUTED_IN_FP32 else precision)

    def memory_rate(self, level: str = "DRAM") -> Ceiling | None:
        """The ceiling of traffic to and from `level`."""
        return self._of_levels.get(level)

    def memory_rate_of(self, data_bytes: int) -> Ceiling | None:
        """The highest ceiling of those levels that hold `data_bytes`, DRAM among them."""
        return next(
            (
                ceiling
                for ceiling in self._of_memory
                if ceiling.level == "DRAM" or data_bytes <= (ceiling.capacity_bytes or 0)
            ),
            None,
        )

    def link_rate(self, level: str = "NVLink") -> Ceiling | None:
        """The ceiling of copies over the link `level`, one way."""
        return next((c for c in self.ceilings if c.kind == "link" and c.level == level), None)

    def _compute(self, unit: Unit, precision: str) -> Ceiling | None:
        return self._of_units.get((unit, precision))


def datasheet_ceilings(spec: DeviceSpec) -> tuple[Ceiling, ...]:
    """What the vendor promises for a device: dense compute peaks, DRAM bandwidth and its links.

    A link's figure is for both directions together; a ceiling is one way.
    """
    compute = tuple(
        Ceiling(
            kind="compute",
            rate=tflops * 1e12,
            source="datasheet",
            reference=spec.source,
            unit=peaks.unit,
            # Named apart, so that no work is compared with it: torch accumulates in fp32.
            precision=precision if peaks.accumulate == "fp32" else f"{precision} summed in fp16",
            clock_mhz=peaks.clock_mhz,
        )
        for peaks in spec.peaks
        for precision, tflops in peaks.tflops.items()
    )
    link = "Infinity Fabric" if spec.name.startswith("AMD") else "NVLink"
    both_ways, to_host = spec.link_gb_per_s, spec.host_link_gb_per_s
    return (
        *compute,
        *_promised("memory", "DRAM", spec.dram_gb_per_s, spec),
        *_promised("link", link, both_ways and both_ways / 2, spec),
        *_promised("link", spec.host_link, to_host and to_host / 2, spec),
    )


def _promised(
    kind: Literal["memory", "link"], level: str, gb_per_s: float | None, spec: DeviceSpec
) -> tuple[Ceiling, ...]:
    if gb_per_s is None:
        return ()
    return (
        Ceiling(
            kind=kind,
            rate=gb_per_s * 1e9,
            source="datasheet",
            reference=spec.source,
            level=level,
        ),
    )


def preferred_source(ceilings: Sequence[Ceiling]) -> Source | None:
    """The one source of `ceilings` that percentages are taken of; None where there is none."""
    sources = {ceiling.source for ceiling in ceilings}
    by_preference: tuple[Source, ...] = ("counters", "datasheet", "measured")
    return next((source for source in by_preference if source in sources), None)


def at_clock(ceiling: Ceiling, clock_mhz: int | None) -> Ceiling | None:
    """The datasheet's compute peak at another clock of the same units.

    None for a rate that was measured or is no compute, where a clock is unknown, and where the
    two clocks are the same.
    """
    if ceiling.source != "datasheet" or ceiling.kind != "compute":
        return None
    if not clock_mhz or not ceiling.clock_mhz or clock_mhz == ceiling.clock_mhz:
        return None
    return msgspec.structs.replace(
        ceiling, rate=ceiling.rate * clock_mhz / ceiling.clock_mhz, clock_mhz=clock_mhz
    )


def measured_ceilings(calibration: Calibration) -> tuple[Ceiling, ...]:
    """What a calibration run reached. Where two rates are of one kind, the larger is the roof."""
    best: dict[tuple[object, ...], Ceiling] = {}
    for measured in calibration.ceilings:
        ceiling = Ceiling(
            kind=measured.kind,
            rate=measured.rate,
            source="measured",
            reference=measured.method,
            unit=measured.unit or _measured_unit(calibration, measured.precision),
            precision=measured.precision,
            level=measured.level,
            clock_mhz=measured.sm_clock_mhz,
            spread=measured.spread,
            latency_ns=measured.latency_ns,
            capacity_bytes=measured.capacity_bytes,
            conditions=_conditions(calibration, measured),
        )
        key = (ceiling.kind, ceiling.unit, ceiling.precision, ceiling.level)
        if key not in best or best[key].rate < ceiling.rate:
            best[key] = ceiling
    return tuple(best.values())


def _conditions(calibration: Calibration, measured: MeasuredCeiling) -> str:
    """ "2 threads, 3% other work, 2026-11-28 17:40 UTC", of which each may be unknown."""
    facts = [] if calibration.threads is None else [f"{calibration.threads} threads"]
    if calibration.threads == 1:
        facts = ["1 thread"]
    if measured.other_work is not None:
        facts.append(f"{measured.other_work:.0%} other work")
    if measured.measured_ns is not None:
        when = datetime.fromtimestamp(measured.measured_ns / 1e9, tz=timezone.utc)
        facts.append(f"{when:%Y-%m-%d %H:%M} UTC")
    return ", ".join(facts)


def _measured_unit(calibration: Calibration, precision: str | None) -> Unit | None:
    """The unit that a matrix product of `precision` ran on.

    The device table says which precisions have tensor units. A GPU it does not know, or a CPU
    with matrix extensions, has them for the reduced precisions.
    """
    if precision is None:
        return None
    device = calibration.device
    spec = find_spec(device).spec
    if spec is not None:
        tensor = {p for peaks in spec.peaks if peaks.unit == "tensor" for p in peaks.tflops}
        return "tensor" if precision in tensor else "vector"
    if precision in ("fp64", "fp32"):
        return "vector"
    if device.kind == "cpu":
        return "tensor" if "AMX" in (device.architecture or "") else "vector"
    return "tensor"
