"""Which rank of the job each file is that was read by itself, as where all become one capture.

The rules are those of `gpuprof.collectors.joining`; here they meet summaries in place of captures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import polars as pl

from gpuprof.collectors import memory_snapshot
from gpuprof.collectors.joining.captures import COUNTER_SOURCE, snapshot_left_out
from gpuprof.collectors.joining.companions import SOURCES
from gpuprof.collectors.joining.ranks import bystanders_left_out, distinct_ranks
from gpuprof.roofline.ranks.summary import RankSummary


@dataclass(frozen=True)
class FileRank:
    """A rank in a file or folder."""

    place: str
    # Its number there.
    rank: int


@dataclass(frozen=True)
class JobRank:
    """One rank, where it was read from, and which dumps and logs tell of it beside that."""

    file: FileRank
    summary: RankSummary
    beside: tuple[FileRank, ...] = ()


def ranks_of_files(files: Sequence[Sequence[JobRank]]) -> tuple[list[JobRank], list[str]]:
    """The ranks of the job, in order, from those in each file, and what is left out or numbered."""
    told = [each for each in files if _source(each) in SOURCES]
    traces = [each for each in files if _source(each) not in SOURCES]
    traces, warnings = _without_snapshots(traces)
    traces, reports = _without_reports(traces)
    traces, bystanders = _without_bystanders(traces)
    ranks, numbered = _numbered(traces)
    warnings += [*reports, *bystanders, *numbered]
    companions: list[JobRank] = []
    for source in SOURCES:
        found, numbered = _numbered([each for each in told if _source(each) == source])
        companions += found
        warnings += numbered
    ranks = _with_told(ranks, companions)
    world_size = max(len(ranks), *(each.summary.process.world_size for each in ranks))
    return [_changed(each, world_size=world_size) for each in ranks], warnings


def _source(file: Sequence[JobRank]) -> str:
    return file[0].summary.process.source


def _title(file: Sequence[JobRank]) -> str:
    return file[0].summary.process.title


def _without_snapshots(
    files: Sequence[Sequence[JobRank]],
) -> tuple[list[Sequence[JobRank]], list[str]]:
    others = [each for each in files if _source(each) != memory_snapshot.SOURCE]
    if not others:
        return list(files), []
    found = [each for each in files if _source(each) == memory_snapshot.SOURCE]
    return others, [snapshot_left_out(_title(each)) for each in found]


def _without_reports(
    files: Sequence[Sequence[JobRank]],
) -> tuple[list[Sequence[JobRank]], list[str]]:
    """Counters are joined to the launches of a trace, which is not at hand here."""
    others = [each for each in files if _source(each) != COUNTER_SOURCE]
    if not others:
        return list(files), []
    return others, [
        f"left out: {_title(each)}: counters of Nsight Compute, to be analysed with the trace of "
        "their rank"
        for each in files
        if _source(each) == COUNTER_SOURCE
    ]


def _without_bystanders(
    files: Sequence[Sequence[JobRank]],
) -> tuple[list[Sequence[JobRank]], list[str]]:
    others = [each for each in files if not each[0].summary.process.is_bystander]
    found = [_title(each) for each in files if each[0].summary.process.is_bystander]
    if not found or not others:
        return list(files), []
    return others, [bystanders_left_out(found)]


def _numbered(files: Sequence[Sequence[JobRank]]) -> tuple[list[JobRank], list[str]]:
    """Ranks with a number of their own, in order."""
    ranks = [each for file in files for each in file]
    warnings: list[str] = []
    if len(files) > 1:
        numbers, warnings = distinct_ranks(
            [_title(file) for file in files],
            [
                [(each.summary.rank, each.summary.process.rank_from) for each in file]
                for file in files
            ],
        )
        ranks = [
            _changed(each, rank=mapping[each.summary.rank])
            for file, mapping in zip(files, numbers, strict=True)
            for each in file
        ]
    return sorted(ranks, key=lambda each: each.summary.rank), warnings


def _with_told(ranks: Sequence[JobRank], companions: Sequence[JobRank]) -> list[JobRank]:
    """`ranks` with what dumps and logs tell of them, and ranks that only those tell of."""
    found = {each.summary.rank: each for each in ranks}
    if len(ranks) == 1 and len({each.summary.rank for each in companions}) == 1:
        companions = [_as_rank_of(ranks[0], each) for each in companions]
    for each in companions:
        known = found.get(each.summary.rank)
        found[each.summary.rank] = each if known is None else _beside(known, each)
    return [found[rank] for rank in sorted(found)]


def _as_rank_of(trace: JobRank, companion: JobRank) -> JobRank:
    """One process beside one that names no rank is the same, whatever their numbers."""
    if "order" not in (trace.summary.process.rank_from, companion.summary.process.rank_from):
        return companion
    return _changed(companion, rank=trace.summary.rank)


def _beside(trace: JobRank, companion: JobRank) -> JobRank:
    ours, theirs = trace.summary.process, companion.summary.process
    groups = {group.name: group for group in (*theirs.process_groups, *ours.process_groups)}
    process = msgspec.structs.replace(
        ours,
        host=ours.host or theirs.host,
        versions=theirs.versions | ours.versions,
        process_groups=tuple(groups.values()),
        communicators=(*ours.communicators, *theirs.communicators),
        warnings=tuple(dict.fromkeys((*ours.warnings, *theirs.warnings))),
    )
    records = pl.concat([trace.summary.records, companion.summary.records])
    return replace(
        trace,
        summary=replace(trace.summary, process=process, records=records),
        beside=(*trace.beside, companion.file, *companion.beside),
    )


def _changed(known: JobRank, **facts: int) -> JobRank:
    process = msgspec.structs.replace(known.summary.process, **facts)
    return replace(known, summary=replace(known.summary, process=process))
