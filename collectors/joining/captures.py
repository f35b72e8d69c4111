"""Several captures of one run as one: the ranks of a job, or a trace and its counters."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors import memory_snapshot, schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.companions import beside, is_companion, join_companions
from gpuprof.collectors.joining.first_launches import match_first_launches
from gpuprof.collectors.joining.graph_partners import with_partners
from gpuprof.collectors.joining.launch_keys import KEY, launch_keys
from gpuprof.collectors.joining.launch_matching import match_launches
from gpuprof.collectors.joining.ranks import with_distinct_ranks, without_bystanders
from gpuprof.collectors.joining.recorded_device_work import with_recorded_device_work
from gpuprof.collectors.joining.same_process import without_second_recordings
from gpuprof.collectors.manifest import ProcessInfo

COUNTER_SOURCE: Final = "ncu"


def join(captures: Sequence[Capture]) -> Capture:
    """One capture of one run: its traces as ranks, with the counters of its Nsight Compute reports.

    Counters go to the kernel launches they were measured on, found by name, grid, block and order;
    their key columns become those of the trace. The kernels of a report are not added: they are
    launches that the trace has. Without a trace the first report takes its place. What found no
    partner is counted in the warnings. Memory snapshots beside traces are left out, and recordings
    of Nsight Systems of a process that there is a trace of, unless that has no device work: then it
    gets the recording's. What
    flight recorders and logs tell becomes part of the rank that it is of. Raises `ValueError`
    without captures.
    """
    companions = [capture for capture in captures if is_companion(capture)]
    if companions:
        told = join_companions(companions)
        traces = [capture for capture in captures if not is_companion(capture)]
        return beside(join(traces), told) if traces else told
    captures, left_out = _without_snapshots(captures)
    reports = [capture for capture in captures if capture.manifest.source == COUNTER_SOURCE]
    traces = with_recorded_device_work(
        [capture for capture in captures if capture.manifest.source != COUNTER_SOURCE]
    )
    traces, recorded_twice = without_second_recordings(traces)
    left_out += recorded_twice
    if not traces:
        traces, reports = reports[:1], reports[1:]
    capture = join_ranks(traces)
    for report in reports:
        capture = _with_counters(capture, report)
    if left_out:
        first, *others = capture.processes
        capture = capture.with_processes((_warned(first, left_out), *others))
    return capture


def _without_snapshots(captures: Sequence[Capture]) -> tuple[Sequence[Capture], list[str]]:
    """`captures` without memory snapshots, unless they are nothing else, and what that leaves out.

    A snapshot is no rank of a trace, and its history is of other steps.
    """
    others = [capture for capture in captures if capture.manifest.source != memory_snapshot.SOURCE]
    if not others or len(others) == len(captures):
        return captures, []
    return others, [
        snapshot_left_out(capture.manifest.title)
        for capture in captures
        if capture.manifest.source == memory_snapshot.SOURCE
    ]


def snapshot_left_out(title: str) -> str:
    """The warning about a memory snapshot beside traces."""
    return f"left out: {title}: a memory snapshot, to be analysed by itself"


def join_ranks(captures: Sequence[Capture]) -> Capture:
    """The ranks of one job as one capture, in the order of rank.

    Ranks that two captures claim, as files that do not say theirs do, are told apart as
    `with_distinct_ranks` says, with a warning; processes that are no rank of the job are left out
    with one. Traces that tell what replayed graphs run become part of the one that replays them.
    Raises `ValueError` without captures.
    """
    if not captures:
        raise ValueError("no captures to join")
    captures, warnings = without_bystanders(with_partners(captures))
    if len(captures) > 1:
        captures, renumbered = with_distinct_ranks(captures)
        warnings += renumbered
    return joined(captures, warnings)


def joined(captures: Sequence[Capture], warnings: Sequence[str] = ()) -> Capture:
    """`captures`, whose ranks differ, as one in the order of rank; the first rank is warned."""
    if len(captures) == 1 and not warnings:
        return captures[0]
    notes = list(warnings)
    clocks = sorted({capture.manifest.clock for capture in captures})
    if len(clocks) > 1:
        notes.append(f"the files have different clocks ({'; '.join(clocks)}): ranks do not align")
    processes = sorted(
        (process for capture in captures for process in capture.processes),
        key=lambda process: process.rank,
    )
    world_size = max(len(processes), max(process.world_size for process in processes))
    processes = [msgspec.structs.replace(process, world_size=world_size) for process in processes]
    processes[0] = _warned(processes[0], notes)
    tables = {
        name: pl.concat(capture.table(name) for capture in captures) for name in schema.TABLES
    }
    return Capture(
        msgspec.structs.replace(
            captures[0].manifest,
            source=" + ".join(dict.fromkeys(capture.manifest.source for capture in captures)),
            created_ns=min(capture.manifest.created_ns for capture in captures),
            clock=captures[0].manifest.clock,
            ranks=tuple(process.rank for process in processes),
        ),
        tuple(processes),
        **tables,
    )


def with_first_launches(trace: Capture, report: Capture, window: pl.Series) -> Capture:
    """`trace` of one process with the counters of `report`, as `join` adds them.

    The report holds the first launches of each name, grid and block among the rows `window` of the
    trace's kernels.
    """
    report = _on_rank_of(trace, report)
    shared = trace.kernels.select("shared_memory").with_row_index("row")
    launched = launch_keys(trace.kernels, trace.launches).join(
        shared, on="row", maintain_order="left"
    )
    in_window = launched.filter(pl.col("row").is_in(window.implode()))
    report_keys = launch_keys(report.kernels, report.launches)
    return _with_matched(trace, report, match_first_launches(in_window, report_keys))


def _with_counters(trace: Capture, report: Capture) -> Capture:
    """`trace` with the counters of `report`."""
    report = _on_rank_of(trace, report)
    matched = match_launches(
        launch_keys(trace.kernels, trace.launches), launch_keys(report.kernels, report.launches)
    )
    return _with_matched(trace, report, matched)


def _with_matched(trace: Capture, report: Capture, matched: pl.DataFrame) -> Capture:
    trace_keys = launch_keys(trace.kernels, trace.launches)
    report_keys = launch_keys(report.kernels, report.launches)
    found = report_keys.select(pl.col(KEY).name.suffix("_report"), "row").join(
        matched.rename({"report_row": "row"}), on="row"
    )
    found = found.join(
        trace_keys.rename({"row": "trace_row"}), on="trace_row", maintain_order="left"
    )
    counters = (
        report.counters.drop("certain")
        .rename({name: f"{name}_report" for name in KEY})
        .join(
            found,
            on=[f"{name}_report" for name in KEY],
            nulls_equal=True,
            maintain_order="left",
        )
    )
    counters = pl.concat([trace.counters, schema.conform("counters", counters)]).unique(
        [*KEY, "metric"], keep="first", maintain_order=True
    )
    warnings = [
        *(text for process in report.processes for text in process.warnings),
        *_unmatched(report_keys, matched),
        *_other_device(trace.processes[0], report.processes[0]),
    ]
    first, *others = trace.processes
    return replace(
        trace,
        processes=(_warned(_with_device(first, report), warnings), *others),
        counters=counters,
    )


def _on_rank_of(trace: Capture, report: Capture) -> Capture:
    """A report of one process beside a trace of one: they are the same, whatever their numbers."""
    if len(trace.processes) == len(report.processes) == 1:
        rank = trace.processes[0].rank
        return Capture(
            report.manifest,
            report.processes,
            **{
                name: frame.with_columns(pl.lit(rank, pl.Int32).alias("rank"))
                for name, frame in report.tables().items()
            },
        )
    return report


def _unmatched(report_keys: pl.DataFrame, matched: pl.DataFrame) -> list[str]:
    warnings = []
    without_launch = report_keys.height - matched.height
    if without_launch:
        warnings.append(
            f"{without_launch} of {report_keys.height} profiled launches are not in the trace: "
            "their counters are left out"
        )
    assumed = matched.filter(~pl.col("certain")).height
    if assumed:
        warnings.append(
            f"counters of {assumed} launches were given to the first launches of the same name, "
            "grid and block: Nsight Compute profiled only some of those"
        )
    return warnings


def _other_device(trace: ProcessInfo, report: ProcessInfo) -> list[str]:
    """A sentence where the counters were measured on another kind of device than the trace."""
    ours, theirs = (process.fingerprint.devices for process in (trace, report))
    if not ours or not theirs or theirs[0].name in {device.name for device in ours}:
        return []
    return [f"the counters were measured on {theirs[0].name}, the trace on {ours[0].name}"]


def _with_device(process: ProcessInfo, report: Capture) -> ProcessInfo:
    """The report's devices where the trace names none, and their L2 where it does not say it."""
    known = process.fingerprint.devices
    theirs = report.processes[0].fingerprint.devices
    sizes = {device.name: device.l2_cache_bytes for device in theirs}
    devices = theirs
    if known:
        devices = tuple(
            msgspec.structs.replace(device, l2_cache_bytes=sizes.get(device.name))
            if device.l2_cache_bytes is None
            else device
            for device in known
        )
    return msgspec.structs.replace(
        process, fingerprint=msgspec.structs.replace(process.fingerprint, devices=devices)
    )


def _warned(process: ProcessInfo, warnings: Sequence[str]) -> ProcessInfo:
    new = tuple(dict.fromkeys((*process.warnings, *warnings)))
    return msgspec.structs.replace(process, warnings=new)
