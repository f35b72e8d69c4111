"""How a job of a thousand ranks is read: time by ranks and workers, memory, what is found.

    python benchmarks/thousand_ranks.py RECORDINGS FOLDER [--ranks 64 256] [--workers 1 2]

RECORDINGS are the traces of one job on a few GPUs, of which the last rank runs extra work; the
ranks made of them (tests/support/synthetic_ranks.py) are written into FOLDER. Of each number of
ranks the files are read by each number of workers, in turn, so that a machine that drifts does not
count; seconds exclude the start of the workers. With other work on the machine seconds compare
little: processor time tells how much there is to do, by workers and by the process that leads them,
and the most that so many cores could gain from so many workers follows from it. At the end stands
what the analysis of the last ranks says, beside what is planted in them.
"""

import argparse
import os
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

# Workers import this file before they have their environment, and polars would take its threads
# from the wrong one: what imports polars is imported where it is used.
if TYPE_CHECKING:
    from synthetic_ranks import Planted

    from gpuprof.profiler.cluster.job import Job


@dataclass(frozen=True)
class Run:
    """All files read once."""

    seconds: float
    # Processor time of all workers together, and of the process with the scheduler and client.
    workers_s: float
    leading_s: float
    # The largest resident set of a worker when its imports are done, and at the end.
    first_bytes: int
    worker_bytes: int
    job: "Job"


def _used() -> tuple[float, int]:
    """Processor time in s and the largest resident set in bytes, of the process that runs this."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def read(places: Sequence[str], workers: int) -> Run:
    """Read `places` with `workers`, each of which has what it imports."""
    from gpuprof.profiler.cluster.job import job_of
    from gpuprof.profiler.cluster.reading import read_summaries
    from gpuprof.profiler.cluster.workers import local_workers, read_on_workers

    def outcomes(some: Sequence[str], client: Any) -> Any:
        return read_on_workers(read_summaries, some, client)

    with local_workers(workers) as client:
        for _ in outcomes(places[: 2 * workers], client):
            pass
        before, led_s = client.run(_used), time.process_time()
        started = time.perf_counter()
        job = job_of("job", outcomes(places, client), places, lambda _: None)
        seconds = time.perf_counter() - started
        led_s = time.process_time() - led_s
        after = client.run(_used)
    return Run(
        seconds,
        sum(used_s - before[name][0] for name, (used_s, _) in after.items()),
        led_s,
        max(largest for _, largest in before.values()),
        max(largest for _, largest in after.values()),
        job,
    )


def main() -> None:
    """Measure and print."""
    from synthetic_ranks import write_ranks

    from gpuprof.profiler.cluster.places import files_of_ranks

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    print(" ranks workers        s  CPU ms a rank: workers, leading   MB a worker: first, last")
    for ranks in arguments.ranks:
        folder = arguments.folder / f"ranks_{ranks}"
        folder.mkdir(parents=True, exist_ok=True)
        planted = write_ranks(arguments.recordings, folder, ranks)
        places = files_of_ranks(str(folder))
        runs: dict[int, list[Run]] = {workers: [] for workers in arguments.workers}
        for _ in range(arguments.rounds):
            for workers, done in runs.items():
                done.append(read(places, workers))
        for workers, done in runs.items():
            _print(ranks, workers, done)
        _print_gains(runs)
        last = done[-1]
    _print_found(last, planted)


def _median(runs: Sequence[Run], name: str) -> float:
    return statistics.median(getattr(run, name) for run in runs)


def _print(ranks: int, workers: int, runs: Sequence[Run]) -> None:
    each, leading = (_median(runs, name) / ranks * 1000 for name in ("workers_s", "leading_s"))
    first, last = (
        max(getattr(run, name) for run in runs) / 1e6 for name in ("first_bytes", "worker_bytes")
    )
    print(
        f"{ranks:6} {workers:7} {_median(runs, 'seconds'):8.1f} {each:23.0f} {leading:8.0f} "
        f"{first:19.0f} {last:5.0f}",
        flush=True,
    )


def _print_gains(runs: dict[int, list[Run]]) -> None:
    """How much sooner more workers are done: in seconds, and where all cores are theirs."""
    (first, alone), *others = runs.items()
    cores = len(os.sched_getaffinity(0))
    # Workers of one core each, beside which the leading process runs where a core is free.
    least_s = {
        workers: max(
            _median(done, "workers_s") / workers,
            (_median(done, "workers_s") + _median(done, "leading_s")) / cores,
        )
        for workers, done in runs.items()
    }
    for workers, done in others:
        # Each round is a pair, of the same minutes.
        seconds = [one.seconds / more.seconds for one, more in zip(alone, done, strict=True)]
        print(
            f"{'':6} {workers:7} {statistics.median(seconds):8.2f} times as fast as {first} "
            f"({min(seconds):.2f} to {max(seconds):.2f}); by processor time "
            f"{least_s[first] / least_s[workers]:.2f} on {cores} cores that do nothing else"
        )


def _print_found(run: Run, planted: "Planted") -> None:
    """What the analysis says of the job beside what is planted in it."""
    from gpuprof.profiler.cluster.analysis import analyze_of_job, capture_of_rank
    from gpuprof.profiler.cluster.job import encode_job
    from gpuprof.reports.html.page import render_html

    started = time.process_time()
    analysis = analyze_of_job(run.job, capture_of_rank(run.job, None))
    joined_s = time.process_time() - started
    page = render_html(analysis)
    stored = len(encode_job(run.job))
    print(f"joined in {joined_s:.1f} s of processor time; summaries {stored / 1e6:.1f} MB")
    print(f"report {len(page.encode()) / 1e6:.2f} MB")
    print(f"planted: extra work {planted.extra_work}, slow device {planted.slow_device},")
    print(f"  wrong clock {planted.wrong_clock}, halved {planted.halved},")
    print(f"  unreadable {planted.unreadable}")
    print(analysis.ranks)
    print(*analysis.warnings, sep="\n")


if __name__ == "__main__":
    main()
