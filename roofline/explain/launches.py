"""The kernels of some work, and how they were launched."""

import polars as pl

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.checklist.find import CountedKernels
from gpuprof.roofline.checklist.launches import launches_of
from gpuprof.roofline.explanation_figures import ExplainedKernel, TimeSpread
from gpuprof.roofline.kernel_names.decode import decode


def kernels_of(
    kernels: pl.DataFrame,
    device: Device | None,
    counted: CountedKernels,
    above_roof: float | None,
) -> tuple[ExplainedKernel, ...]:
    """The kernels of rows of a `Work` that have a time, the largest first.

    `above_roof` is the share of their time above the roof, None where that is unknown.
    """
    found = []
    timed = kernels.drop_nulls("duration_ns")
    for (name, kind, role), rows in timed.group_by("name", "kind", "role", maintain_order=True):
        number, checks = counted.checks(rows, device, above_roof) if kind == "kernel" else (0, ())
        found.append(
            ExplainedKernel(
                name=str(name),
                kind=str(kind),
                role=str(role or ""),
                decoded=decode(str(name)) if kind in ("kernel", "collective") else None,
                launches=launches_of(rows, device),
                time=spread_of(rows["duration_ns"]),
                checks=checks,
                counted=number,
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.time.total_ns, each.name)))


def spread_of(durations: pl.Series) -> TimeSpread:
    """Of the durations of at least one piece of work."""
    values = durations.sort()
    quartiles = None
    if len(values) >= 4:
        low, high = (values.quantile(share, "nearest") for share in (0.25, 0.75))
        quartiles = (round(low or 0), round(high or 0))
    return TimeSpread(
        number=len(values),
        total_ns=int(values.sum()),
        minimum_ns=int(values[0]),
        median_ns=round(values.quantile(0.5, "midpoint") or 0),
        quartiles_ns=quartiles,
        maximum_ns=int(values[-1]),
    )
