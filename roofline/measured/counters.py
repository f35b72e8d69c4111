"""What a kernel executed, from the hardware counters of one launch.

A counter that was not collected makes its quantity unknown, never 0. Volta and Turing count tensor
instructions only, of varying size, so their tensor operations are unknown.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final, NamedTuple

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.launch_keys import KEY, launch_keys
from gpuprof.roofline.cost_models.cost import PeakTime
from gpuprof.roofline.machine.ceilings import Unit
from gpuprof.roofline.measured.levels import level_traffic
from gpuprof.roofline.measured.metric_table import metric_table
from gpuprof.roofline.measured.speed_of_light import peak_times
from gpuprof.roofline.measured.submetrics import DURATION, total

# DRAM moves sectors of this size.
_SECTOR_BYTES: Final = 32
# What the details page calls the SM's frequency is that of its cluster.
SM_CLOCKS: Final = ("sm__cycles_elapsed", "smsp__cycles_elapsed", "gpc__cycles_elapsed")
_TENSOR: Final = re.compile(
    r"sm__ops_path_tensor(?:_op_(?P<op>[a-z]+))?_src_(?P<src>[a-z]+\d+)"
    r"(?:_dst_(?P<dst>[a-z]+\d+))?(?:_sparsity_(?P<sparsity>on|off))?"
)
# Instructions and busy cycles of the tensor units, of whatever type.
_TENSOR_PIPE: Final = re.compile(
    r"smsp?__(?:inst_executed_)?pipe_tensor\w*\."
    r"(?:sum|avg)(?:\.per_cycle_\w+|\.pct_of_peak_\w+|\.per_second)?$"
)


class TensorCounter(NamedTuple):
    """A counter of operations on the tensor units: its source type and what else narrows it."""

    precision: str
    # op, dst and sparsity, where the counter's name has them.
    parts: dict[str, str]


class ExecutedFlops(msgspec.Struct, frozen=True):
    """`count` operations that ran on `unit`, of a precision as in `Flops`; a fused one is two.

    The unit is where they ran: a float32 product without tensor units counts as vector. fp16 on
    the vector unit may be bf16.
    """

    unit: Unit
    precision: str
    count: int


class ExecutedWork(msgspec.Struct, frozen=True, kw_only=True):
    """One launch as the hardware counted it. None where a counter was not collected."""

    # One entry for each unit and precision that was counted, zeros included.
    flops: tuple[ExecutedFlops, ...] = ()
    dram_bytes_read: int | None = None
    dram_bytes_written: int | None = None
    # Read plus written; known without the two where only the throughput was collected.
    dram_bytes: int | None = None
    l2_bytes: int | None = None
    # Copies that bypass L1 (TMA on Hopper and later) are not in it.
    l1_bytes: int | None = None
    # Counters of their pipes say that the tensor units did nothing, in any type.
    tensor_idle: bool = False
    # Under Nsight Compute: alone, by default at the base clock and with cold caches. Not comparable
    # with a trace's durations.
    duration_ns: int | None = None
    # With its busiest unit at its peak.
    peak_times: tuple[PeakTime, ...] = ()
    # What the SM clock was meanwhile; peaks to compare with are those at this clock.
    sm_clock_hz: float | None = None

    def count(self, unit: Unit, precision: str) -> int | None:
        """Operations of one kind, or None where they were not counted."""
        for part in self.flops:
            if (part.unit, part.precision) == (unit, precision):
                return part.count
        return None


def executed_work(counters: Mapping[str, float]) -> ExecutedWork:
    """The work of one launch from its counters, metric -> value in base units."""
    duration = counters.get(DURATION)
    read = _moved(counters, "dram__bytes_read", "dram__sectors_read")
    written = _moved(counters, "dram__bytes_write", "dram__sectors_write")
    moved = None if read is None or written is None else read + written
    traffic = {level: found.bytes_moved for level, found in level_traffic(counters).items()}
    return ExecutedWork(
        flops=(*_tensor_flops(counters), *_vector_flops(counters)),
        dram_bytes_read=read,
        dram_bytes_written=written,
        dram_bytes=traffic.get("DRAM") if moved is None else moved,
        l2_bytes=traffic.get("L2"),
        l1_bytes=traffic.get("L1"),
        tensor_idle=_tensor_idle(counters),
        duration_ns=None if duration is None else round(duration),
        peak_times=peak_times(counters),
        sm_clock_hz=sm_clock_hz(counters),
    )


def sm_clock_hz(counters: Mapping[str, float]) -> float | None:
    """Cycles a second of the SMs during one launch."""
    for clock in SM_CLOCKS:
        if f"{clock}.avg.per_second" in counters:
            return counters[f"{clock}.avg.per_second"]
    return None


def executed_by_launch(counters: pl.DataFrame) -> dict[tuple[object, ...], ExecutedWork]:
    """The work of every launch in a capture's counters table.

    Keys are tuples in the order of `launch_keys.KEY`, which kernels have too.
    """
    return {key: executed_work(values) for key, values in values_by_launch(counters)}


def values_by_launch(
    counters: pl.DataFrame,
) -> Iterator[tuple[tuple[object, ...], dict[str, float]]]:
    """Each launch's key and its counters, metric -> value in base units."""
    for key, group in counters.drop_nulls("value").group_by(*KEY, maintain_order=True):
        yield key, dict(group.select("metric", "value").iter_rows())


def executed_by_kernel(capture: Capture) -> tuple[dict[int, ExecutedWork], frozenset[int]]:
    """The counted work by row of the capture's kernels, and the rows that may be another launch's.

    A report that holds some launches of a trace may not tell which of several alike they were.
    """
    values, unsure = counters_by_kernel(capture)
    return {row: executed_work(counters) for row, counters in values.items()}, unsure


def counters_by_kernel(
    capture: Capture,
) -> tuple[dict[int, dict[str, float]], frozenset[int]]:
    """As `executed_by_kernel`, the counters themselves: metric -> value in base units."""
    by_key = dict(values_by_launch(capture.counters))
    uncertain = set(capture.counters.filter(~pl.col("certain")).select(KEY).iter_rows())
    found, unsure = {}, set()
    keys = launch_keys(capture.kernels, capture.launches)
    for row, *parts in keys.select("row", *KEY).iter_rows():
        key = tuple(parts)
        if key in by_key:
            found[row] = by_key[key]
            if key in uncertain:
                unsure.add(row)
    return found, frozenset(unsure)


def _vector_flops(counters: Mapping[str, float]) -> list[ExecutedFlops]:
    found = []
    for kind in metric_table().vector:
        counts = [_instructions(counters, name) for name in kind.operations]
        known = [count for count in counts if count is not None]
        # Additions without the products would be a part passed off as the whole.
        if len(known) == len(counts):
            operations = sum(
                n * weight for n, weight in zip(known, kind.operations.values(), strict=True)
            )
            found.append(ExecutedFlops("vector", kind.precision, round(operations)))
    return found


def _instructions(counters: Mapping[str, float], instruction: str) -> float | None:
    """Executed instructions, counted or, as the roofline sections collect them, as a rate."""
    return total(counters, f"smsp__sass_thread_inst_executed_op_{instruction}_pred_on")


def _tensor_flops(counters: Mapping[str, float]) -> list[ExecutedFlops]:
    by_source: dict[str, list[tuple[dict[str, str], float]]] = {}
    for counter in dict.fromkeys(metric.partition(".sum")[0] for metric in counters):
        source = tensor_counter(counter)
        count = None if source is None else total(counters, counter)
        if source is not None and count is not None:
            by_source.setdefault(source.precision, []).append((source.parts, count))
    found = []
    for precision in metric_table().tensor.precisions.values():
        operations = _without_double_counting(by_source.get(precision, []))
        if operations is not None:
            found.append(ExecutedFlops("tensor", precision, round(operations)))
    return found


def tensor_counter(counter: str) -> TensorCounter | None:
    """What a counter, given without its submetric, counts on the tensor units; None if nothing."""
    match = _TENSOR.fullmatch(counter)
    if match is None or match["src"] not in metric_table().tensor.precisions:
        return None
    parts = {name: text for name, text in match.groupdict().items() if text and name != "src"}
    return TensorCounter(metric_table().tensor.precisions[match["src"]], parts)


def _tensor_idle(counters: Mapping[str, float]) -> bool:
    """Whether counters of the pipes say that the tensor units did nothing."""
    pipes = [value for metric, value in counters.items() if _TENSOR_PIPE.match(metric)]
    return bool(pipes) and not any(pipes)


def _without_double_counting(counts: list[tuple[dict[str, str], float]]) -> float | None:
    """The sum over counters of one source type, each operation once.

    A counter narrowed by instruction, result type or sparsity is part of one that is not. None
    where two that are left overlap in part, so that no sum is right.
    """
    whole = [
        (parts, value)
        for parts, value in counts
        if not any(other.items() < parts.items() for other, _ in counts)
    ]
    for (first, _), (second, _) in combinations(whole, 2):
        disjoint = any(first[name] != second[name] for name in first.keys() & second.keys())
        if not disjoint:
            return None
    return sum(value for _, value in whole) if whole else None


def _moved(counters: Mapping[str, float], in_bytes: str, in_sectors: str) -> int | None:
    """Bytes of one direction, taken from sectors where they were not collected themselves."""
    moved, sectors = total(counters, in_bytes), total(counters, in_sectors)
    if moved is not None:
        return round(moved)
    return None if sectors is None else round(sectors * _SECTOR_BYTES)
