"""How a job of a thousand ranks is read: time by ranks and workers, memory, what is found.

    python benchmarks/thousand_ranks.py RECORDINGS FOLDER [--ranks 64 256] [--workers 1 2] [--kill]

RECORDINGS are the traces of one job on a few GPUs, of which the last rank runs extra work; the
ranks made of them (tests/support/synthetic_ranks.py) are written into FOLDER. Of each number of
ranks the files are read by each number of workers, in turn, so that a machine that drifts does not
count; seconds exclude the start of the workers. On a machine with other work only processor time
tells how much there is to do. With --kill a worker is lost in each run. At the end stands what the
analysis of the last ranks says, beside what is planted in them.
"""

import argparse
import os
import resource
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

from synthetic_ranks import Planted, write_ranks

from gpuprof.profiler.cluster.analysis import analyze_of_job, capture_of_rank
from gpuprof.profiler.cluster.job import Job, encode_job, job_of
from gpuprof.profiler.cluster.places import files_of_ranks
from gpuprof.profiler.cluster.reading import read_summaries
from gpuprof.profiler.cluster.workers import local_workers, lost_workers, read_on_workers
from gpuprof.reports.html.page import render_html


@dataclass(frozen=True)
class Run:
    """All files read once. Processor time is of all workers together."""

    seconds: float
    processor_s: float
    # The largest resident set of a worker.
    worker_bytes: int
    job: Job
    lost: int


def _used() -> tuple[float, int]:
    """Processor time in s and the largest resident set in bytes, of the process that runs this."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def read(places: Sequence[str], workers: int, *, kill: bool = False) -> Run:
    """Read `places` with `workers`; with `kill` one of them is lost after a tenth of the files."""
    with local_workers(workers) as client:
        _warm_up(client, places[:1] * 2 * workers)
        before = {name: seconds for name, (seconds, _) in client.run(_used).items()}
        victim = next(iter(client.run(os.getpid).values())) if kill else 0
        killed: list[int] = []

        def progress(done: int) -> None:
            if victim and not killed and done > len(places) // 10:
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)

        started = time.perf_counter()
        job = job_of("job", read_on_workers(read_summaries, places, client), places, progress)
        seconds = time.perf_counter() - started
        after = client.run(_used)
        return Run(
            seconds,
            sum(used - before.get(name, 0.0) for name, (used, _) in after.items()),
            max(largest for _, largest in after.values()),
            job,
            len(lost_workers(client)),
        )


def _warm_up(client: Any, places: Sequence[str]) -> None:
    """Have the workers import what they need."""
    for _ in read_on_workers(read_summaries, places, client):
        pass


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kill", action="store_true")
    arguments = parser.parse_args()
    print(f"{'ranks':>6} {'workers':>7} {'s':>8} {'CPU ms a rank':>14} {'MB a worker':>12}")
    for ranks in arguments.ranks:
        folder = arguments.folder / f"ranks_{ranks}"
        folder.mkdir(parents=True, exist_ok=True)
        planted = write_ranks(arguments.recordings, folder, ranks)
        places = files_of_ranks(str(folder))
        runs: dict[int, list[Run]] = {workers: [] for workers in arguments.workers}
        for _ in range(arguments.rounds):
            for workers, done in runs.items():
                done.append(read(places, workers, kill=arguments.kill))
        for workers, done in runs.items():
            _print(ranks, workers, done)
        seconds = [statistics.median(run.seconds for run in done) for done in runs.values()]
        print(
            *(f"{'':6} {seconds[0] / each:.2f} times the first" for each in seconds[1:]), sep="\n"
        )
        last = done[-1]
    _print_found(last, planted)


def _print(ranks: int, workers: int, runs: Sequence[Run]) -> None:
    seconds = statistics.median(run.seconds for run in runs)
    processor = statistics.median(run.processor_s for run in runs) / ranks * 1000
    largest = max(run.worker_bytes for run in runs) / 1e6
    print(f"{ranks:6} {workers:7} {seconds:8.1f} {processor:14.0f} {largest:12.0f}", flush=True)


def _print_found(run: Run, planted: Planted) -> None:
    """What the analysis says of the job beside what is planted in it."""
    started = time.process_time()
    analysis = analyze_of_job(run.job, capture_of_rank(run.job, None))
    joined_s = time.process_time() - started
    page = render_html(analysis)
    stored = len(encode_job(run.job))
    print(f"joined in {joined_s:.1f} s of processor time; summaries {stored / 1e6:.1f} MB")
    print(f"report {len(page.encode()) / 1e6:.2f} MB; {run.lost} workers lost")
    print(f"planted: extra work {planted.extra_work}, slow device {planted.slow_device},")
    print(f"  wrong clock {planted.wrong_clock}, halved {planted.halved},")
    print(f"  unreadable {planted.unreadable}")
    print(analysis.ranks)
    print(*analysis.warnings, sep="\n")


if __name__ == "__main__":
    main()
