"""One visit to a GPU for the gate: A/A processes to keep, and slow-downs to be caught.

    python3 tests/gpu/visit_gate.py --output OUT --seconds 300 --processes 60

Runs benchmarks/gate_suite in fresh processes. While one measures, the next ones import and then
wait for a file, so that the GPU is hardly idle between them; only one process at a time touches it.
First come A/A processes of the whole suite, at least ten, unless --alike has those of an earlier
visit; then pairs of each benchmark with a slow-down injected. Each injection is judged as a gate of
the suite would judge it, beside the first A/A pairs of the other nine, and measured again as long
as the rule asks for it; its first pair is profiled, too, and tells why. Writes suite.json.gz (the
A/A processes, as tests/data/gate keeps them) and injected.json.gz, and prints a table.
"""

import argparse
import gzip
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from gpuprof.collectors import storage
from gpuprof.profiler.captures import load_analysis
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.measurement import Measurement, measurement
from gpuprof.roofline.gate.result import Explanation
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import Side
from gpuprof.roofline.gate.suite import (
    MeasuredProcess,
    Rules,
    judge_suite,
    targets_wanting_pairs,
)

SUITE = Path(__file__).parents[2] / "benchmarks" / "gate_suite" / "test_suite.py"
INJECTED = {
    "matmul": "fp32 fallback",
    "linear_gelu": "extra pass",
    "attention": "slower tiles",
    "softmax": "lost fusion",
    "small_layers": "lost CUDA graph",
}
SHARE = 0.05
# Processes that import while another measures: importing takes longer than measuring one benchmark.
AHEAD = 4
RULES = Rules(RuleSettings())


@dataclass(frozen=True)
class Job:
    """One fresh process."""

    side: Side
    pair: int
    first: bool
    # Empty: the whole suite.
    test: str
    inject: str
    profiled: int


def command(job: Job, output: Path, ready: Path) -> list[str]:
    """The command of a process that waits for `ready` before it touches the GPU."""
    # pytest finds the plugin by itself where gpuprof is installed.
    found = any(point.name == "gpuprof" for point in entry_points(group="pytest11"))
    plugin = () if found else ("-p", "gpuprof.profiler.gate.pytest_plugin")
    what = f"{SUITE}::test_{job.test}" if job.test else str(SUITE)
    return [
        *(sys.executable, "-m", "pytest", what, "-q", "-p", "no:cacheprovider"),
        *plugin,
        f"--gpuprof-record={output}",
        *(f"--gpuprof-steps=5,20,{job.profiled}", f"--inject={job.inject}"),
        f"--wait-for={ready}",
    ]


def run_jobs(jobs: Sequence[Job], folder: Path, end: float) -> Iterator[tuple[Job, Path, float]]:
    """Run `jobs` one after the other until `end`; yields each with its captures and seconds."""
    folder.mkdir(parents=True, exist_ok=True)

    def start(index: int) -> "subprocess.Popen[bytes]":
        output = folder / f"{index:03d}"
        with (folder / f"{index:03d}.log").open("wb") as log:
            return subprocess.Popen(
                command(jobs[index], output, folder / f"{index:03d}.ready"),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    started = deque(start(index) for index in range(min(AHEAD, len(jobs))))
    try:
        for index, job in enumerate(jobs):
            running = started.popleft()
            if index + AHEAD < len(jobs):
                started.append(start(index + AHEAD))
            begin = time.monotonic()
            (folder / f"{index:03d}.ready").touch()
            status = running.wait(timeout=120)
            if status != 0:
                print((folder / f"{index:03d}.log").read_text()[-2000:])
                raise SystemExit(f"process {index} ended with {status}")
            yield job, folder / f"{index:03d}", time.monotonic() - begin
            if time.monotonic() > end:
                return
    finally:
        for waiting in started:
            waiting.kill()


def measured(job: Job, folder: Path, seconds: float) -> MeasuredProcess:
    """What one process measured."""
    found: dict[str, Measurement] = {}
    for path in sorted(folder.glob("*.gpuprof")):
        name = path.stem.split(".test_")[-1]
        found[name] = measurement(storage.load(path), load_analysis(path))
    return MeasuredProcess(
        target="suite" if not job.test else job.test,
        side=job.side,
        pair=job.pair,
        first=job.first,
        measurements=found,
        seconds=round(seconds, 2),
    )


def pairs(numbers: Iterable[int], test: str, inject: str, profiled: int) -> list[Job]:
    """AB BA AB ..."""
    jobs = []
    for pair in numbers:
        order: tuple[Side, Side] = ("A", "B") if pair % 2 == 0 else ("B", "A")
        jobs += [
            Job(side, pair, side == order[0], test, inject if side == "B" else "", profiled)
            for side in order
        ]
    return jobs


class Injections:
    """The pairs of every injected slow-down so far."""

    def __init__(self, names: Iterable[str], suite: Sequence[MeasuredProcess]) -> None:
        self._suite = [process for process in suite if process.pair < RULES.settings.looks[0]]
        self.processes: dict[str, list[MeasuredProcess]] = {name: [] for name in names}
        self._folders: dict[tuple[str, int, Side], Path] = {}

    def add(self, job: Job, folder: Path, seconds: float) -> None:
        """Keep what one process measured."""
        self.processes[job.test].append(measured(job, folder, seconds))
        self._folders[job.test, job.pair, job.side] = folder

    def judge(self, name: str, *, give_up: bool = False) -> tuple[Judgement, ...]:
        """As a gate of the whole suite in which only this benchmark changed."""
        others = [
            msgspec.structs.replace(
                process, measurements={n: m for n, m in process.measurements.items() if n != name}
            )
            for process in self._suite
        ]
        return judge_suite(
            [*others, *self.processes[name]], RULES, today=date.today(), give_up=give_up
        )

    def wanted(self) -> list[Job]:
        """The pairs that the rule asks for."""
        jobs = []
        for name, done in self.processes.items():
            count = len(done) // 2
            more = RULES.settings.looks[0]
            if count:
                own = [j for j in self.judge(name) if j.benchmark == name]
                more = targets_wanting_pairs(done, own).get(name, 0)
            for pair in range(count, count + more):
                # Starting the profiler takes longer than all else that a process does.
                jobs += pairs([pair], name, f"{name}={SHARE}", int(pair == 0))
        return jobs

    def line(self, name: str) -> str:
        """The verdict on one and what carries it."""
        judgements = self.judge(name, give_up=True)
        alarms = [j.benchmark for j in judgements if j.fails and j.benchmark != name]
        timed = next(j for j in judgements if j.benchmark == name and j.metric.name == "time")
        before, after = (
            load_analysis(next(self._folders[name, 0, side].glob("*.gpuprof")))
            for side in ("A", "B")
        )
        comparison = compare(before, after)
        culprits = Explanation(benchmark=name, comparison=comparison).culprits
        first = f"{culprits[0].name[:70]} ({culprits[0].op})" if culprits else "none"
        return (
            f"{INJECTED[name]:16} {name:13} {timed.verdict:13} {timed.change or 0:+7.2%} "
            f"p {timed.p_worse or 0:.1e}  {len(self.processes[name]) // 2} pairs, detects "
            f"{timed.smallest_detectable or 0:.1%}  first: {first}"
            f"{'; alarms: ' if alarms else ''}{', '.join(alarms)}"
        )


def main() -> None:
    """Run the visit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--processes", type=int, default=60, help="A/A")
    parser.add_argument("--alike", type=Path, help="suite.json.gz of an earlier visit")
    parser.add_argument("--injected", nargs="*", choices=list(INJECTED), default=list(INJECTED))
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    arguments.output.mkdir(parents=True, exist_ok=True)
    suite: list[MeasuredProcess] = []
    jobs = pairs(range(arguments.processes // 2), "", "", 0)
    if arguments.alike is not None:
        content = gzip.decompress(arguments.alike.read_bytes())
        suite, jobs = msgspec.json.decode(content, type=list[MeasuredProcess]), []
    for job, folder, seconds in run_jobs(jobs, arguments.output / "suite", end):
        suite.append(measured(job, folder, seconds))
        print(f"A/A {len(suite)}: {seconds:.1f} s", flush=True)
        keep(arguments.output / "suite.json.gz", suite)
    injections = Injections(arguments.injected, suite)
    round_number = 0
    while time.monotonic() < end and (jobs := injections.wanted()):
        round_number += 1
        folder = arguments.output / f"injected{round_number}"
        for job, output, seconds in run_jobs(jobs, folder, end):
            injections.add(job, output, seconds)
            print(f"{job.test} {job.pair}{job.side}: {seconds:.1f} s", flush=True)
            keep(arguments.output / "injected.json.gz", injections.processes)
        for name, done in injections.processes.items():
            complete = len(done) >= 2 * RULES.settings.looks[0]
            print(injections.line(name) if complete else f"{name}: the time is up")
    print(f"{len(suite)} A/A processes of the suite")


def keep(file: Path, what: object) -> None:
    """Store what was measured so far."""
    file.write_bytes(gzip.compress(msgspec.json.encode(what)))


if __name__ == "__main__":
    main()
