"""The rates of a bench's cases, and their shares of the device's roofs and of the library."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof.roofline.bench.libraries import is_library
from gpuprof.roofline.bench.results import BenchReport, CaseResult
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.ceilings import Roof, datasheet_ceilings, measured_ceilings
from gpuprof.roofline.machine.devices import find_spec
from gpuprof.roofline.machine.roof_time import Traffic, roof_time


@dataclass(frozen=True)
class Roofs:
    """What a device can do at most, by source; None where that is not known."""

    datasheet: Roof | None
    measured: Roof | None
    # Bytes a second over the device's links in one direction.
    link_rate: float | None


@dataclass(frozen=True)
class Rates:
    """What one timed case reached. None where it does none of that, or has no roof."""

    # By the problem's definition, and as executed where the version says that it differs.
    flops_per_s: float | None
    executed_flops_per_s: float | None
    # Compulsory bytes over the time; of a collective the bus bandwidth.
    bytes_per_s: float
    is_bus_bandwidth: bool
    # Back to back: FLOPs by the definition, or where there are none, compulsory bytes.
    sustained_flops_per_s: float | None
    sustained_bytes_per_s: float | None
    # Shares of the roof (executed FLOPs, compulsory bytes), or of the link.
    of_datasheet: float | None
    of_measured: float | None
    of_link: float | None


def roofs_of(report: BenchReport) -> Roofs:
    """The roofs of the device of `report`."""
    spec = None if report.device is None else find_spec(report.device).spec
    calibration = report.calibration
    return Roofs(
        None if spec is None else Roof(datasheet_ceilings(spec), "datasheet"),
        None if calibration is None else Roof(measured_ceilings(calibration), "measured"),
        # The table has both directions together.
        None if spec is None or spec.link_gb_per_s is None else spec.link_gb_per_s / 2 * 1e9,
    )


def rates(case: CaseResult, roofs: Roofs) -> Rates | None:
    """The rates of `case`, or None where it was not timed."""
    if not case.median_ns:
        return None
    seconds = case.median_ns / 1e9
    moved = case.bytes_moved if case.bus_bytes is None else case.bus_bytes
    over_link = case.bus_bytes is not None
    rate = moved / seconds
    link = roofs.link_rate
    sustained_s = None if case.sustained is None else case.sustained.call_ns / 1e9
    return Rates(
        flops_per_s=_count(case.flops) / seconds if case.flops else None,
        executed_flops_per_s=(
            None if case.executed_flops is None else _count(case.executed_flops) / seconds
        ),
        bytes_per_s=rate,
        is_bus_bandwidth=over_link,
        sustained_flops_per_s=(
            _count(case.flops) / sustained_s if sustained_s and case.flops else None
        ),
        sustained_bytes_per_s=moved / sustained_s if sustained_s else None,
        of_datasheet=None if over_link else _share(case, roofs.datasheet),
        of_measured=None if over_link else _share(case, roofs.measured),
        of_link=rate / link if over_link and link else None,
    )


def library_time(case: CaseResult, cases: Sequence[CaseResult]) -> CaseResult | None:
    """The fastest version of the same problem that calls a library's kernel, `case` included."""
    rivals = (
        other
        for other in cases
        if (other.family, other.size, other.dtype) == (case.family, case.size, case.dtype)
        and other.median_ns is not None
        and is_library(other.version)
    )
    return min(rivals, key=lambda other: other.median_ns or 0, default=None)


def _share(case: CaseResult, roof: Roof | None) -> float | None:
    traffic = Traffic.of_calls(case.bytes_read, case.bytes_written, calls=1)
    binding = roof_time(case.done_flops, (traffic,), roof).binding
    if binding is None or not case.median_ns:
        return None
    return binding.ns / case.median_ns


def _count(flops: Sequence[Flops]) -> int:
    return sum(part.count for part in flops)
