"""What kernels without an operator cost, by their hardware counters.

Counters are of one launch. Launches of one name, grid and block that did the same operations are
work of one kind, whose bytes are a mean.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.cost_models.cost import Cost, Flops, PeakTime
from gpuprof.roofline.kernel_names.product_names import names_product
from gpuprof.roofline.measured.counters import (
    ExecutedFlops,
    ExecutedWork,
    executed_by_kernel,
)
from gpuprof.roofline.measured_figures import COUNTED
from gpuprof.roofline.work.counted_kernels import CountedWork

# A packed instruction works on two 16-bit numbers: its ceiling is no other precision's.
PACKED: Final = "packed fp16"
_SPEED_OF_LIGHT: Final = (
    "its roof is the peak of its busiest unit, as Nsight Compute's Speed of Light has it; what "
    "that unit did was not counted, and may be more than the program needs"
)
# Launches of one kind differ by so much in their time (clock, cache), and still are of one kind.
_NEAR: Final = 0.25
_VECTOR_PRECISIONS: Final = ("fp64", "fp32", "fp16")
_TENSOR_PRECISIONS: Final = ("bf16", "fp16", "tf32")
_LAUNCH: Final = tuple(f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz")
_Kind: TypeAlias = tuple[object, ...]


def counted_work(capture: Capture) -> tuple[CountedWork, ...]:
    """The counted kernels of a one-rank capture by kind, each with the cost of one launch.

    Left out are launches that were counted, but not for certain, of which others of the name and
    grid did other operations.
    """
    if capture.counters.is_empty():
        return ()
    executed, unsure = executed_by_kernel(capture)
    launches = capture.kernels.with_row_index("kernel_row").filter(
        (pl.col("kind") == "kernel") & pl.col("kernel_row").is_in(list(executed))
    )
    alike: dict[_Kind, dict[tuple[ExecutedFlops, ...], list[int]]] = {}
    for row, *launch in launches.select("kernel_row", "name", *_LAUNCH).iter_rows():
        alike.setdefault(tuple(launch), {}).setdefault(executed[row].flops, []).append(row)
    others = _others_alike(capture, executed)
    found = []
    for (name, *launch), by_flops in alike.items():
        for rows in by_flops.values():
            sure = [row for row in rows if len(by_flops) == 1 or row not in unsure]
            if not sure:
                continue
            cost, reason = cost_of_launches(str(name), [executed[row] for row in sure])
            if capture.manifest.source != "ncu":
                # A trace has durations of its own, at clocks of its own.
                cost = msgspec.structs.replace(cost, peak_times=())
            more = others.get((name, *launch), ()) if len(by_flops) == 1 else ()
            if more:
                said = (
                    f"from {len(sure)} counted launches of this name, grid and block; "
                    f"{len(more)} others took as long and were not counted"
                )
                cost = msgspec.structs.replace(cost, assumptions=(*cost.assumptions, said))
            found.append(CountedWork(str(name), (*sure, *more), cost, reason))
    return tuple(found)


def _others_alike(
    capture: Capture, executed: Mapping[int, ExecutedWork]
) -> dict[_Kind, tuple[int, ...]]:
    """Rows of launches that were not counted, by name, grid and block of launches that were.

    Only those whose duration lies among, or near, the durations of the counted ones: a product of
    one grid may have another inner size.
    """
    rows = (
        capture.kernels.with_row_index("kernel_row")
        .filter((pl.col("kind") == "kernel") & pl.all_horizontal(pl.col(_LAUNCH).is_not_null()))
        .select(
            "kernel_row",
            "name",
            *_LAUNCH,
            ns=pl.col("end_ns") - pl.col("start_ns"),
            counted=pl.col("kernel_row").is_in(list(executed)),
        )
    )
    counted = (
        rows.filter("counted")
        .group_by("name", *_LAUNCH)
        .agg(least_ns=pl.col("ns").min(), most_ns=pl.col("ns").max())
    )
    near = (
        rows.filter(~pl.col("counted"))
        .join(counted, on=["name", *_LAUNCH])
        .filter(
            (pl.col("ns") * (1 + _NEAR) >= pl.col("least_ns"))
            & (pl.col("ns") <= pl.col("most_ns") * (1 + _NEAR))
        )
    )
    found: dict[_Kind, list[int]] = {}
    for row, *launch in near.select("kernel_row", "name", *_LAUNCH).iter_rows():
        found.setdefault(tuple(launch), []).append(row)
    return {kind: tuple(several) for kind, several in found.items()}


def cost_of_launches(name: str, launches: Sequence[ExecutedWork]) -> tuple[Cost, str]:
    """One launch of several that did the same operations, and why some of it is unknown."""
    flops, not_counted, reason = _flops(name, launches[0])
    read = _mean(launch.dram_bytes_read for launch in launches)
    written = _mean(launch.dram_bytes_written for launch in launches)
    divided = read is not None and written is not None
    both = None if divided else _mean(launch.dram_bytes for launch in launches)
    if not reason and not divided and both is None:
        reason = "its bytes are unknown: DRAM traffic was not counted"
    assumptions: tuple[str, ...] = (COUNTED,)
    peaks = () if flops is not None else _mean_peak_times(launches)
    if not_counted and (flops is not None or peaks):
        assumptions += (f"not counted: {not_counted}",)
    if peaks:
        assumptions += (_SPEED_OF_LIGHT,)
    cost = Cost(
        flops=flops,
        bytes_read=read if divided else None,
        bytes_written=written if divided else None,
        undivided_bytes=both,
        assumptions=assumptions,
        peak_times=peaks,
    )
    return cost, reason


def _mean_peak_times(launches: Sequence[ExecutedWork]) -> tuple[PeakTime, ...]:
    """Of one launch; () where one of them has none. The unit named is the first one's."""
    if not all(launch.peak_times for launch in launches):
        return ()
    return tuple(
        msgspec.structs.replace(times[0], ns=sum(each.ns for each in times) / len(times))
        for times in zip(*(launch.peak_times for launch in launches), strict=True)
    )


def _flops(name: str, work: ExecutedWork) -> tuple[tuple[Flops, ...] | None, str, str]:
    """The operations, what was not counted beside them, and why they are unknown."""
    counted = {(part.unit, part.precision): part.count for part in work.flops}
    tensor = sum(part.count for part in work.flops if part.unit == "tensor")
    no_vector = [each for each in _VECTOR_PRECISIONS if ("vector", each) not in counted]
    no_tensor = [each for each in _TENSOR_PRECISIONS if ("tensor", each) not in counted]
    if work.tensor_idle or tensor:
        no_tensor = []
    not_counted = "; ".join(
        f"{', '.join(precisions)} operations of the {unit} units"
        for unit, precisions in (("tensor", no_tensor), ("vector", no_vector))
        if precisions
    )
    if no_tensor and names_product(name):
        return None, not_counted, f"its FLOPs are unknown: not counted were {not_counted}"
    if not_counted and not any(counted.values()):
        return None, not_counted, f"its FLOPs are unknown: not counted were {not_counted}"
    return tuple(_as_flops(part) for part in work.flops if part.count), not_counted, ""


def _as_flops(part: ExecutedFlops) -> Flops:
    if part.unit == "tensor":
        return Flops("matmul", part.precision, part.count)
    return Flops("vector", PACKED if part.precision == "fp16" else part.precision, part.count)


def _mean(counts: Iterable[int | None]) -> int | None:
    """None where one of the launches was not counted."""
    every = list(counts)
    known = [count for count in every if count is not None]
    return round(sum(known) / len(known)) if known and len(known) == len(every) else None
