"""The checklists of the largest kernels of an analysis."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.checklist.checks import LaunchFacts, checks_of
from gpuprof.roofline.checklist.launches import LAUNCH, launches_of
from gpuprof.roofline.checklist_figures import KernelCheck, KernelChecklist
from gpuprof.roofline.measured.counters import counters_by_kernel
from gpuprof.roofline.points.above_roof import shares_above_roof
from gpuprof.roofline.work.work import Work

_MOST_KERNELS: Final = 12
# Of the device time.
_LEAST_SHARE: Final = 0.005


class CountedKernels:
    """The counters of the launches of a capture of one rank, by row of its kernels."""

    def __init__(self, capture: Capture) -> None:
        if capture.counters.is_empty():
            self._values: dict[int, dict[str, float]] = {}
            return
        values, unsure = counters_by_kernel(capture)
        self._values = {row: found for row, found in values.items() if row not in unsure}

    def checks(
        self, rows: pl.DataFrame, device: Device | None, above_roof: float | None
    ) -> tuple[int, tuple[KernelCheck, ...]]:
        """How many of `rows` were counted, and what they say.

        `rows` are launches of one kernel of one operator, as in `Work.kernels`. `above_roof` is the
        share of their time above the roof, None where that is unknown.
        """
        counted = [self._values[row] for row in rows["kernel_row"] if row in self._values]
        return len(counted), checks_of(_means(counted), _facts(rows, device), above_roof)


def kernel_checklists(
    capture: Capture,
    work: Work,
    kernels: Sequence[RooflinePoint],
    ops: Iterable[RooflinePoint],
    device: Device | None,
) -> tuple[KernelChecklist, ...]:
    """Of the largest of `kernels`; those of which nothing is known are left out."""
    if device is not None and device.kind == "cpu":
        return ()
    counted, above = CountedKernels(capture), shares_above_roof(ops)
    largest = [
        point
        for point in kernels
        if point.kind == "kernel" and point.device_fraction >= _LEAST_SHARE
    ][:_MOST_KERNELS]
    rows_of = _rows_by_identity(work, {point.name for point in largest})
    found = []
    for point in largest:
        rows = rows_of.get((point.name, point.op, point.op_detail, point.phase))
        if rows is None:
            continue
        share = above.get((point.op, point.op_detail, point.phase))
        if point.roof_fraction is not None:
            share = max(0.0, 1 - point.roof_fraction)
        number, checks = counted.checks(rows, device, share)
        if checks:
            found.append(
                KernelChecklist(
                    kernel=point.name,
                    op=point.op,
                    op_detail=point.op_detail,
                    phase=point.phase,
                    counted=number,
                    device_ns=point.device_ns,
                    checks=checks,
                )
            )
    return tuple(found)


def _rows_by_identity(
    work: Work, names: Collection[str]
) -> dict[tuple[str, str, str, str], pl.DataFrame]:
    """Launches of kernels of these names by what tells points of kernels apart: name, operator,
    its shapes, and phase."""
    found: dict[tuple[str, str, str, str], pl.DataFrame] = {}
    read = ("name", "signature", "phase", "kernel_row", *LAUNCH)
    kernels = work.kernels.select(read).filter(pl.col("name").is_in(list(names)))
    groups = kernels.group_by("name", "signature", "phase", maintain_order=True)
    for (name, number, phase), rows in groups:
        signature = None if number is None else work.signatures[int(str(number))]
        op, detail = ("", "") if signature is None else (signature.name, signature.detail)
        key = (str(name), op, detail, str(phase))
        found[key] = rows if key not in found else pl.concat([found[key], rows])
    return found


def _means(launches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each metric that all launches have."""
    if not launches:
        return {}
    common = set(launches[0]).intersection(*launches[1:])
    return {metric: fmean(launch[metric] for launch in launches) for metric in common}


def _facts(rows: pl.DataFrame, device: Device | None) -> LaunchFacts:
    """Of the configuration that most launches have."""
    launches = launches_of(rows, device)
    if not launches or launches[0].grid is None:
        return LaunchFacts()
    first = launches[0]
    return LaunchFacts(
        occupancy=first.occupancy,
        blocks=math.prod(first.grid or ()),
        multiprocessors=None if device is None else device.multiprocessors,
        waves=first.waves,
    )
