"""Makes a capture of a bench, so that summary, report, compare and gate work on it.

A step is one call of every version, in the order of the bench. A timed step's time is the sum of
its calls' times, each taken alone between two events; with one version it is that call's time.
The profiled steps are a few calls of each under torch.profiler. They come from many short
recordings, so their times are moved: the calls of a step follow each other without a gap.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import polars as pl

from gpuprof._version import __version__
from gpuprof.collectors import kineto, schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.files.temporary import temporary_folder
from gpuprof.collectors.live import cuda
from gpuprof.collectors.live.torch_trace import TorchTrace
from gpuprof.collectors.manifest import Manifest, ProcessInfo, Schedule
from gpuprof.collectors.plugins import PluginUse
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.reference_kernels.suite import Prepared
from gpuprof.roofline.bench.results import BenchReport, CaseResult
from gpuprof.roofline.work.attribution import attribute

SOURCE = "gpuprof bench"
PROFILED_CALLS = 3
# Between calls that are put side by side, so that none touches the next.
_GAP_NS = 1_000
_TABLES = ("kernels", "ops", "launches")


@dataclass(frozen=True)
class ProfiledCase:
    """A few calls of one version under torch.profiler, each within its window (start, end)."""

    result: CaseResult
    windows: tuple[tuple[int, int], ...]
    trace: Capture


def profile_case(
    result: CaseResult, prepared: Prepared, flush: Callable[[], None], line_up: Callable[[], None]
) -> ProfiledCase:
    """Record `PROFILED_CALLS` calls, each after a flush of the caches, alone on the device."""
    return ProfiledCase(result, *profile_calls(prepared, flush, line_up))


def profile_calls(
    prepared: Prepared, flush: Callable[[], None], line_up: Callable[[], None]
) -> tuple[tuple[tuple[int, int], ...], Capture]:
    """The windows (start, end) of `PROFILED_CALLS` calls, and the trace that holds them."""
    windows = []
    with temporary_folder("bench") as folder:
        trace = TorchTrace(folder / "call.json", steps=None)
        trace.start()
        for _ in range(PROFILED_CALLS):
            if prepared.before is not None:
                prepared.before()
            flush()
            line_up()
            _synchronize()
            start_ns = time.time_ns()
            prepared.call()
            _synchronize()
            windows.append((start_ns, time.time_ns()))
        trace.stop()
        path = trace.export()
        elsewhere = trace.cupti_held_by is not None and cuda.in_use()
        recorded = kineto.read(path, advise=False, recorded=True, device_elsewhere=elsewhere)
        return tuple(windows), recorded


def make_capture(
    report: BenchReport,
    profiled: Sequence[ProfiledCase],
    collected: Mapping[str, pl.DataFrame],
    *,
    ranks: Ranks,
    device_position: int,
    title: str,
    plugins: tuple[PluginUse, ...] = (),
) -> Capture:
    """The capture of one rank; `profiled` holds at least one case, each of which was timed.

    `plugins` had a part in `collected`.
    """
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in (*_TABLES, "ranges")}
    steps = _timed_steps(profiled, by_events=report.method.flushed_bytes is not None)
    cursor = max(int(window[1]) for case in profiled for window in case.windows)
    numbers = _Numbers()
    for number in range(PROFILED_CALLS):
        step_start = cursor
        for case in profiled:
            start, end = case.windows[number]
            for name, frame in _moved(case, (start, end), cursor - start, numbers).items():
                parts[name].append(frame)
            cursor += end - start + _GAP_NS
        host_ns = sum(case.windows[number][1] - case.windows[number][0] for case in profiled)
        span = {"start_ns": step_start, "end_ns": cursor}
        steps.append({"phase": "profiled", **span, "host_ns": host_ns})
    labels = [case.result.label for case in profiled]
    found_by = labels[0] if len(labels) == 1 else f"one call of each of {len(labels)} versions"
    rank = pl.lit(ranks.rank, pl.Int32).alias("rank")
    tables = {
        name: schema.conform(name, pl.concat(frames)).with_columns(rank)
        for name, frames in parts.items()
    }
    for name, frame in collected.items():
        tables[name] = pl.concat([tables.get(name, schema.empty(name)), frame])
    rows = [
        {"rank": ranks.rank, "index": i, "found_by": found_by, **s} for i, s in enumerate(steps)
    ]
    process = ProcessInfo(
        rank=ranks.rank,
        world_size=ranks.world_size,
        process=os.getpid(),
        command=report.command,
        started_ns=report.created_ns,
        ended_ns=time.time_ns(),
        exit_code=0,
        ending="finished",
        fingerprint=report.fingerprint,
        device=device_position,
        schedule=Schedule(warmup=0, timed=len(steps) - PROFILED_CALLS, profiled=PROFILED_CALLS),
        steps_found_by=found_by,
        shapes_recorded=True,
        calibration=report.calibration,
        plugins=plugins,
        warnings=report.warnings,
    )
    manifest = Manifest(
        tool_version=__version__,
        source=SOURCE,
        title=title,
        created_ns=report.created_ns,
        clock="unix epoch; profiled calls are moved next to each other",
        ranks=(ranks.rank,),
    )
    capture = Capture(
        manifest,
        (process,),
        steps=pl.DataFrame(_complete("steps", rows), schema=schema.STEPS),
        **tables,
    )
    return attribute(capture)


class _Numbers:
    """Offsets that keep operator and correlation ids of several recordings apart."""

    def __init__(self) -> None:
        self.op_id = 0
        self.correlation = 0

    def take(self, tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """`tables` with their ids moved behind all that were taken before."""
        moved = {}
        for name, frame in tables.items():
            columns = [c for c in ("op_id", "parent_id") if c in frame.columns]
            shifts = [pl.col(column) + self.op_id for column in columns]
            if "correlation" in frame.columns:
                shifts.append(pl.col("correlation") + self.correlation)
            moved[name] = frame.with_columns(shifts)
        self.op_id = _largest(self.op_id, moved, "op_id") + 1
        self.correlation = _largest(self.correlation, moved, "correlation") + 1
        return moved


def _largest(least: int, tables: dict[str, pl.DataFrame], column: str) -> int:
    found = (frame[column].max() for frame in tables.values() if column in frame.columns)
    return max(least, *(value for value in found if isinstance(value, int)), least)


def _moved(
    case: ProfiledCase, window: tuple[int, int], shift_ns: int, numbers: _Numbers
) -> dict[str, pl.DataFrame]:
    """What was recorded within `window`, `shift_ns` later, and the range that names it."""
    start, end = window
    times = [pl.col("start_ns") + shift_ns, pl.col("end_ns") + shift_ns]
    inside = {
        name: case.trace.table(name).filter(pl.col("start_ns").is_between(start, end))
        for name in _TABLES
    }
    tables = {name: frame.with_columns(times) for name, frame in numbers.take(inside).items()}
    result = case.result
    row = {
        "name": result.label,
        "domain": "bench",
        "process": os.getpid(),
        "thread": threading.get_native_id(),
        "start_ns": start + shift_ns,
        "end_ns": end + shift_ns,
        "flops": sum(part.count for part in result.done_flops),
        "bytes": result.bytes_moved,
        "flops_by_unit": msgspec.json.encode(result.done_flops).decode(),
    }
    return {**tables, "ranges": pl.DataFrame(_complete("ranges", [row]), schema=schema.RANGES)}


def _timed_steps(profiled: Sequence[ProfiledCase], *, by_events: bool) -> list[dict[str, object]]:
    """Step k: the k-th timed call of every case, as many as all of them have."""
    results = [case.result for case in profiled]
    starts = min(result.started_ns or 0 for result in results)
    end = max(result.ended_ns or 0 for result in results)
    rows: list[dict[str, object]] = []
    for k in range(min(len(result.samples_ns) for result in results)):
        time_ns = sum(result.samples_ns[k] for result in results)
        host_ns = sum(result.host_samples_ns[k] for result in results) if by_events else time_ns
        rows.append(
            {
                "phase": "timed",
                # The calls of a step lie anywhere in the bench.
                "start_ns": starts,
                "end_ns": end,
                "device_ns": time_ns if by_events else None,
                "host_ns": host_ns,
            }
        )
    return rows


def _complete(table: str, rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: row.get(name) for name in schema.TABLES[table]} for row in rows]


def _synchronize() -> None:
    if cuda.in_use():
        cuda.synchronize()
