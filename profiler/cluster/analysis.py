"""A job of many ranks -> the analysis of one of them, with what all say together."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import msgspec

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.joining.companions import beside
from gpuprof.collectors.joining.ranks import renumbered
from gpuprof.profiler.cluster.here import read_here
from gpuprof.profiler.cluster.job import Job, job_of
from gpuprof.profiler.cluster.places import name_of
from gpuprof.profiler.cluster.ranks_of_files import FileRank
from gpuprof.profiler.cluster.reading import read_capture, read_summaries
from gpuprof.profiler.cluster.workers import (
    local_workers,
    lost_workers,
    read_on_workers,
    workers_of,
)
from gpuprof.profiler.traces import prepared
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

# Ranks of a job, of which an error names each.
_NAMED = 20


@dataclass(frozen=True)
class Workers:
    """Who reads the ranks: this process, `count` workers here, or the cluster at `address`."""

    count: int | None = None
    address: str | None = None


def read_job(
    title: str,
    places: Sequence[str],
    workers: Workers,
    progress: Callable[[int], None],
    step_range: str | None = None,
) -> Job:
    """The job called `title`, whose ranks lie in `places`, each read by itself.

    Raises `CaptureError` where none can be read, and `CommandError` where workers cannot be had.
    """
    read = partial(read_summaries, step_range=step_range)
    with _client(workers, len(places)) as client:
        if client is None:
            return job_of(title, read_here(read, places), places, progress)
        job = job_of(title, read_on_workers(read, places, client), places, progress)
        return job.warned(_of_lost(job, lost_workers(client)))


def capture_of_rank(job: Job, rank: int | None, step_range: str | None = None) -> Capture:
    """The capture of one rank of `job`, the first if None, read again.

    Raises `CommandError` for a rank that the job has not, and `CaptureError` where its file cannot
    be read.
    """
    chosen = job.rank(rank)
    if chosen is None:
        raise CommandError(f"--rank {rank}: {_ranks_of(job)}", exit_code=2)
    facts = chosen.summary.process
    capture = _read_as(chosen.file, facts.rank, step_range)
    for other in chosen.beside:
        capture = beside(capture, _read_as(other, facts.rank, step_range))
    process = msgspec.structs.replace(capture.processes[0], world_size=facts.world_size)
    manifest = msgspec.structs.replace(capture.manifest, title=job.title)
    return prepared(Capture(manifest, (process,), **capture.tables()))


def analyze_of_job(job: Job, capture: Capture) -> Analysis:
    """The analysis of the rank of `capture` among all ranks of `job`."""
    analysis = analyze(capture, summaries=job.summaries)
    warnings = (*analysis.warnings, *job.left_out)
    return msgspec.structs.replace(analysis, warnings=warnings)


@contextmanager
def _client(workers: Workers, most: int) -> Iterator[object]:
    if workers.address is not None:
        with workers_of(workers.address) as client:
            yield client
    elif workers.count is not None:
        with local_workers(min(workers.count, most)) as client:
            yield client
    else:
        yield None


def _read_as(file: FileRank, rank: int, step_range: str | None) -> Capture:
    """The rank that `file` tells, as `rank` of the job."""
    capture = renumbered(read_capture(file.place, step_range).rank(file.rank), {file.rank: rank})
    manifest = msgspec.structs.replace(capture.manifest, ranks=(rank,))
    return Capture(manifest, capture.processes, **capture.tables())


def _of_lost(job: Job, lost: Sequence[tuple[str, ...]]) -> list[str]:
    """A sentence where workers were `lost` with these places and others read them after all."""
    read = {file.place for each in job.ranks for file in (each.file, *each.beside)}
    names = sorted({name_of(place) for places in lost for place in places if place in read})
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    workers = "a worker was" if len(lost) == 1 else f"{len(lost)} workers were"
    return [f"{workers} lost; read again by others: {', '.join(names[:_NAMED])}{more}"]


def _ranks_of(job: Job) -> str:
    numbers = [each.summary.rank for each in job.ranks]
    if len(numbers) <= _NAMED:
        return f"the ranks here are {', '.join(map(str, numbers))}"
    return f"it is none of the {len(numbers)} ranks here, {numbers[0]} to {numbers[-1]}"
