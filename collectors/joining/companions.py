"""Files that tell of ranks without being a trace of one: flight recorder dumps, logs of NCCL.

What they tell becomes part of the trace of the same rank. Ranks of which there is no trace, and
files without any trace, are ranks by themselves.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors import flight_recorder, nccl_log, schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.ranks import with_distinct_ranks
from gpuprof.collectors.manifest import ProcessInfo

SOURCES: Final = (flight_recorder.SOURCE, nccl_log.SOURCE)


def is_companion(capture: Capture) -> bool:
    """Whether it tells of ranks without being a trace."""
    return capture.manifest.source in SOURCES


def join_companions(captures: Sequence[Capture]) -> Capture:
    """What all of `captures`, which are companions, tell: one process for each rank.

    Files of one kind that name no rank are numbered in the order given, with a warning.
    """
    numbered: list[Capture] = []
    warnings: list[str] = []
    for source in SOURCES:
        of_kind = [capture for capture in captures if capture.manifest.source == source]
        if len(of_kind) > 1:
            of_kind, renumbered = with_distinct_ranks(of_kind)
            warnings += renumbered
        numbered += of_kind
    first, *others = numbered
    joined = first
    for other in others:
        joined = beside(joined, other)
    process, *rest = joined.processes
    return joined.with_processes((_warned(process, warnings), *rest))


def beside(capture: Capture, companion: Capture) -> Capture:
    """`capture` with what `companion` tells of its ranks, and of ranks that it does not have.

    One process beside one that names no rank is the same, whatever their numbers.
    """
    companion = _as_the_only_rank(capture, companion)
    told = {process.rank: process for process in companion.processes}
    known = [_with_facts(process, told.pop(process.rank, None)) for process in capture.processes]
    processes = sorted((*known, *told.values()), key=lambda process: process.rank)
    world_size = max(len(processes), *(process.world_size for process in processes))
    tables = {
        name: pl.concat([capture.table(name), companion.table(name)]) for name in schema.TABLES
    }
    sources = dict.fromkeys((*capture.manifest.source.split(" + "), companion.manifest.source))
    manifest = msgspec.structs.replace(
        capture.manifest,
        source=" + ".join(sources),
        ranks=tuple(process.rank for process in processes),
    )
    return Capture(
        manifest,
        tuple(msgspec.structs.replace(process, world_size=world_size) for process in processes),
        **tables,
    )


def _as_the_only_rank(capture: Capture, companion: Capture) -> Capture:
    if len(capture.processes) != 1 or len(companion.processes) != 1:
        return companion
    (ours,), (theirs,) = capture.processes, companion.processes
    if ours.rank == theirs.rank or "order" not in (ours.rank_from, theirs.rank_from):
        return companion
    rank = pl.lit(ours.rank, pl.Int32).alias("rank")
    return Capture(
        companion.manifest,
        (msgspec.structs.replace(theirs, rank=ours.rank),),
        **{name: frame.with_columns(rank) for name, frame in companion.tables().items()},
    )


def _with_facts(process: ProcessInfo, told: ProcessInfo | None) -> ProcessInfo:
    if told is None:
        return process
    fingerprint = process.fingerprint
    if fingerprint.nccl is None:
        fingerprint = msgspec.structs.replace(fingerprint, nccl=told.fingerprint.nccl)
    groups = {group.name: group for group in (*told.process_groups, *process.process_groups)}
    new = msgspec.structs.replace(
        process,
        host=process.host or told.host,
        fingerprint=fingerprint,
        process_groups=tuple(groups.values()),
        communicators=(*process.communicators, *told.communicators),
    )
    return _warned(new, told.warnings)


def _warned(process: ProcessInfo, warnings: Sequence[str]) -> ProcessInfo:
    new = tuple(dict.fromkeys((*process.warnings, *warnings)))
    return msgspec.structs.replace(process, warnings=new)
