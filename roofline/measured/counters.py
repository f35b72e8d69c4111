"""What a kernel executed, from the hardware counters of one launch.

A counter that was not collected makes its quantity unknown, never 0. Volta and Turing count tensor
instructions only, of varying size, so their tensor operations are unknown.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import combinations
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors.joining.launch_keys import KEY
from gpuprof.roofline.machine.ceilings import Unit

# DRAM and L2 move sectors of this size.
_SECTOR_BYTES: Final = 32
_NANOSECONDS_PER_SECOND: Final = 1_000_000_000
_TENSOR: Final = re.compile(
    r"sm__ops_path_tensor(?:_op_(?P<op>[a-z]+))?_src_(?P<src>[a-z]+\d+)"
    r"(?:_dst_(?P<dst>[a-z]+\d+))?(?:_sparsity_(?P<sparsity>on|off))?\.sum"
)


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
    # Under Nsight Compute: alone, by default at the base clock and with cold caches. Not comparable
    # with a trace's durations.
    duration_ns: int | None = None
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
    duration = counters.get("gpu__time_duration.sum")
    read = _dram_bytes(counters, "read")
    written = _dram_bytes(counters, "write")
    return ExecutedWork(
        flops=(*_tensor_flops(counters), *_vector_flops(counters)),
        dram_bytes_read=read,
        dram_bytes_written=written,
        dram_bytes=_dram_total(counters, read, written, duration),
        l2_bytes=_whole(counters.get("lts__t_bytes.sum"), counters.get("lts__t_sectors.sum")),
        l1_bytes=_whole(counters.get("l1tex__t_bytes.sum"), None),
        duration_ns=_whole(duration, None),
        sm_clock_hz=counters.get("sm__cycles_elapsed.avg.per_second"),
    )


def executed_by_launch(counters: pl.DataFrame) -> dict[tuple[object, ...], ExecutedWork]:
    """The work of every launch in a capture's counters table.

    Keys are tuples in the order of `launch_keys.KEY`, which kernels have too.
    """
    return {
        key: executed_work(dict(group.select("metric", "value").iter_rows()))
        for key, group in counters.drop_nulls("value").group_by(*KEY, maintain_order=True)
    }


def _vector_flops(counters: Mapping[str, float]) -> list[ExecutedFlops]:
    found = []
    for kind in _weights().vector:
        counts = [_instructions(counters, name) for name in kind.operations]
        known = [count for count in counts if count is not None]
        # Additions without the products would be a part passed off as the whole.
        if len(known) == len(counts):
            total = sum(
                n * weight for n, weight in zip(known, kind.operations.values(), strict=True)
            )
            found.append(ExecutedFlops("vector", kind.precision, round(total)))
    return found


def _instructions(counters: Mapping[str, float], instruction: str) -> float | None:
    """Executed instructions, counted or, as the roofline sections collect them, as a rate."""
    for unit in ("smsp", "sm"):
        metric = f"{unit}__sass_thread_inst_executed_op_{instruction}_pred_on.sum"
        if metric in counters:
            return counters[metric]
        # The rate is over the mean cycles of the unit: a 2048^3 float32 product gives 2048^3 ffma.
        rate = counters.get(f"{metric}.per_cycle_elapsed")
        cycles = counters.get(f"{unit}__cycles_elapsed.avg")
        if rate == 0:
            return 0
        if rate is not None and cycles is not None:
            return rate * cycles
    return None


def _tensor_flops(counters: Mapping[str, float]) -> list[ExecutedFlops]:
    by_source: dict[str, list[tuple[dict[str, str], float]]] = {}
    for metric, value in counters.items():
        match = _TENSOR.fullmatch(metric)
        if match and match["src"] in _weights().tensor:
            parts = {k: v for k, v in match.groupdict().items() if v is not None and k != "src"}
            by_source.setdefault(match["src"], []).append((parts, value))
    found = []
    for source, precision in _weights().tensor.items():
        total = _without_double_counting(by_source.get(source, []))
        if total is not None:
            found.append(ExecutedFlops("tensor", precision, round(total)))
    return found


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


def _dram_bytes(counters: Mapping[str, float], direction: str) -> int | None:
    return _whole(
        counters.get(f"dram__bytes_{direction}.sum"), counters.get(f"dram__sectors_{direction}.sum")
    )


def _dram_total(
    counters: Mapping[str, float], read: int | None, written: int | None, duration: float | None
) -> int | None:
    if read is not None and written is not None:
        return read + written
    total = _whole(counters.get("dram__bytes.sum"), counters.get("dram__sectors.sum"))
    # All that the details page shows.
    rate = counters.get("dram__bytes.sum.per_second")
    if total is None and rate is not None and duration is not None:
        return round(rate * duration / _NANOSECONDS_PER_SECOND)
    return total


def _whole(value: float | None, sectors: float | None) -> int | None:
    """A count as an integer, taken from sectors where it was not collected itself."""
    if value is not None:
        return round(value)
    return None if sectors is None else round(sectors * _SECTOR_BYTES)


class _VectorKind(msgspec.Struct, frozen=True):
    precision: str
    operations: dict[str, int]


class _Weights(msgspec.Struct, frozen=True):
    vector: tuple[_VectorKind, ...]
    tensor: dict[str, str]


@lru_cache(maxsize=1)
def _weights() -> _Weights:
    text = files("gpuprof.roofline.measured").joinpath("counters.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Weights)
