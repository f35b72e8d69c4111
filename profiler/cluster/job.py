"""The ranks of one job: what was read of each, from where, and what could not be read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.files.memory_limit import MOST_BYTES
from gpuprof.collectors.files.source import whole_content
from gpuprof.collectors.opening.left_out import left_out_warnings
from gpuprof.profiler.cluster.outcome import Outcome
from gpuprof.profiler.cluster.places import name_of
from gpuprof.profiler.cluster.ranks_of_files import FileRank, JobRank, ranks_of_files
from gpuprof.roofline.ranks.summary import RankSummary

JOB_FILE: Final = "ranks.msgpack"
# Of that file.
_SCHEMA_VERSION: Final = 1
_REMEDY: Final = "run `gpuprof analyze` on the ranks again"


@dataclass(frozen=True)
class Job:
    """All ranks that were read, in order, and sentences about what was not."""

    title: str
    ranks: tuple[JobRank, ...]
    left_out: tuple[str, ...] = ()

    @property
    def summaries(self) -> tuple[RankSummary, ...]:
        """Those of all ranks."""
        return tuple(each.summary for each in self.ranks)

    def rank(self, rank: int | None) -> JobRank | None:
        """The rank of this number, the first if None."""
        return next((each for each in self.ranks if rank in (None, each.summary.rank)), None)

    def warned(self, warnings: Iterable[str]) -> "Job":
        """This job with further sentences."""
        return replace(self, left_out=(*self.left_out, *warnings))


class _StoredRank(msgspec.Struct, frozen=True):
    place: str
    rank_there: int
    summary: bytes
    # Places and ranks there of what tells of the rank beside its trace.
    beside: tuple[tuple[str, int], ...] = ()


class _StoredJob(msgspec.Struct, frozen=True):
    schema_version: int
    title: str
    ranks: tuple[_StoredRank, ...]
    left_out: tuple[str, ...]


def job_of(
    title: str,
    outcomes: Iterable[Outcome],
    places: Sequence[str],
    progress: Callable[[int], None],
) -> Job:
    """The job called `title`, whose ranks lie in `places`, from what was read of each.

    `progress` is told how many were. Raises `CaptureError` where none could be read.
    """
    order = {place: index for index, place in enumerate(places)}
    done: list[Outcome] = []
    for outcome in outcomes:
        done.append(outcome)
        progress(len(done))
    done.sort(key=lambda outcome: order[outcome.place])
    files = [
        [
            JobRank(FileRank(outcome.place, summary.rank), summary)
            for summary in map(RankSummary.from_bytes, outcome.summaries)
        ]
        for outcome in done
        if outcome.summaries
    ]
    problems = [f"{name_of(each.place)}: {each.problem}" for each in done if each.problem]
    if not files:
        raise CaptureError(
            places[0], f"none of {len(places)} files could be read, as in: {problems[0]}"
        )
    ranks, warnings = ranks_of_files(files)
    return Job(title, tuple(ranks), (*left_out_warnings(problems), *warnings))


def encode_job(job: Job) -> bytes:
    """The job as the content of `JOB_FILE`."""
    ranks = tuple(
        _StoredRank(
            each.file.place,
            each.file.rank,
            each.summary.to_bytes(),
            tuple((other.place, other.rank) for other in each.beside),
        )
        for each in job.ranks
    )
    return msgspec.msgpack.encode(_StoredJob(_SCHEMA_VERSION, job.title, ranks, job.left_out))


def read_job_file(capture: Path) -> Job:
    """The job stored with the capture in the folder `capture`. Raises `CaptureError`."""
    file = capture / JOB_FILE
    try:
        content = whole_content(file, MOST_BYTES, what="a file", remedy=_REMEDY)
        stored = msgspec.msgpack.decode(content, type=_StoredJob)
        if stored.schema_version != _SCHEMA_VERSION:
            raise ValueError(f"schema version {stored.schema_version}, not {_SCHEMA_VERSION}")
        ranks = tuple(
            JobRank(
                FileRank(each.place, each.rank_there),
                RankSummary.from_bytes(each.summary),
                tuple(FileRank(place, rank) for place, rank in each.beside),
            )
            for each in stored.ranks
        )
        if not ranks:
            raise ValueError("no ranks in it")
    # ValueError: msgspec's errors too. RecursionError: lists in lists without end.
    except (ValueError, RecursionError) as error:
        raise CaptureError(file, problem_of(error), remedy=_REMEDY) from error
    return Job(stored.title, ranks, stored.left_out)
