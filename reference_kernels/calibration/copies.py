"""Copies between host and device by size: what starting one costs beside its bytes.

The times are those that the profiler gives a copy, so that they can be compared with the copies of
a trace: an event beside a copy of 4 KiB takes as long as the copy.
"""

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl
import torch

from gpuprof.collectors import kineto
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.live.torch_trace import TorchTrace, script_is_profiling
from gpuprof.collectors.manifest import CopyTimes, MeasuredCeiling
from gpuprof.reference_kernels.calibration.timing import spread
from gpuprof.roofline import copies

SIZES: Final = tuple(4 * 2**10 * 4**power for power in range(9))
_REPEATS: Final = 9
_DIRECTIONS: Final = {"host to device": "h2d", "device to host": "d2h"}
_MEMORIES: Final = ("pinned", "pageable")


def measure_copies(index: int) -> tuple[CopyTimes, ...]:
    """Copies of 4 KiB to 256 MiB, one at a time, both ways, of pinned and of pageable memory.

    () where torch's profiler records no copies of `cuda:index`.
    """
    if script_is_profiling():
        return ()
    device = torch.empty(SIZES[-1], dtype=torch.uint8, device=f"cuda:{index}")
    hosts = [
        torch.ones(SIZES[-1], dtype=torch.uint8, pin_memory=pinned) for pinned in (True, False)
    ]
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as folder:
        trace = TorchTrace(Path(folder) / "copies.json", steps=None)
        trace.start()
        for host in hosts:
            _copy_each(device, host)
        trace.stop()
        try:
            return times_of_copies(kineto.read(trace.export(), advise=False).kernels)
        except CaptureError:
            return ()


def _copy_each(device: torch.Tensor, host: torch.Tensor) -> None:
    for size in SIZES:
        for to, origin in ((device[:size], host[:size]), (host[:size], device[:size])):
            for _ in range(_REPEATS):
                to.copy_(origin)
                torch.cuda.synchronize()


def times_of_copies(kernels: pl.DataFrame) -> tuple[CopyTimes, ...]:
    """The median time by size of each kind of copy among the rows of a trace's device work.

    Kinds of which a size is missing are left out, as are those whose names do not tell the kind.
    """
    seen: dict[tuple[str, str], dict[int, list[int]]] = {}
    rows = kernels.filter(pl.col("kind") == "memcpy").select("name", "bytes", "start_ns", "end_ns")
    for name, size, start_ns, end_ns in rows.iter_rows():
        kind = copies.direction(name), copies.host_memory(name)
        seen.setdefault(kind, {}).setdefault(size, []).append(end_ns - start_ns)
    return tuple(
        CopyTimes(
            direction=direction,
            host_memory=memory,
            times=tuple((size, statistics.median(of_kind[size])) for size in SIZES),
            repeats=min(len(of_kind[size]) for size in SIZES),
            spread=spread(of_kind[SIZES[-1]]),
        )
        for memory in _MEMORIES
        for direction in _DIRECTIONS
        if _is_complete(of_kind := seen.get((direction, memory), {}))
    )


def _is_complete(times: Mapping[int, Sequence[int]]) -> bool:
    """Whether there is each size, and the largest takes longest: else the rows are damaged."""
    return set(SIZES) <= times.keys() and min(times[SIZES[-1]]) > max(times[SIZES[0]])


def latency_and_rate(times: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Nanoseconds at any size and bytes/s beyond, through the smallest and the largest copy."""
    (small, small_ns), (large, large_ns) = times[0], times[-1]
    rate = (large - small) / (large_ns - small_ns) * 1e9
    return max(0.0, small_ns - small / rate * 1e9), rate


def copy_latencies(found: Sequence[CopyTimes]) -> dict[str, float]:
    """What a copy of any size takes, in nanoseconds, by link to the host: of pinned copies."""
    return {
        f"PCIe {_DIRECTIONS[each.direction]}": latency_and_rate(each.times)[0]
        for each in found
        if each.host_memory == "pinned"
    }


def pageable_ceilings(found: Sequence[CopyTimes]) -> Iterator[MeasuredCeiling]:
    """The rates and latencies of pageable copies, as ceilings."""
    for each in found:
        if each.host_memory != "pageable":
            continue
        latency_ns, rate = latency_and_rate(each.times)
        name = f"PCIe {_DIRECTIONS[each.direction]} pageable"
        yield MeasuredCeiling(
            kind="link",
            name=name,
            rate=rate,
            spread=each.spread,
            repeats=each.repeats,
            level=name,
            latency_ns=latency_ns,
            method=f"median of {each.repeats} copies of {SIZES[-1] // 2**20} MiB, pageable",
        )
