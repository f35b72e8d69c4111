"""One visit to a GPU for the gate: A/A processes to keep, and slow-downs to be caught.

    python3 tests/gpu/visit_gate.py --output OUT --seconds 300 --processes 60

Runs benchmarks/gate_suite in fresh processes. While one measures, the next imports and then waits
for a file, so that the GPU is hardly idle between them; only one process at a time touches it.
First come pairs for each injected slow-down, judged as the gate judges; then A/A processes of the
whole suite until the time is up. Writes processes.json (all measurements) and suite.json.gz (the
A/A processes, as tests/data/gate keeps them), and prints a table.
"""

import argparse
import gzip
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from gpuprof.collectors import storage
from gpuprof.profiler.captures import load_analysis
from gpuprof.roofline.compare import compare
from gpuprof.roofline.gate.measurement import Measurement, measurement
from gpuprof.roofline.gate.result import Explanation
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import Side
from gpuprof.roofline.gate.suite import MeasuredProcess, Rules, judge_suite

SUITE = Path(__file__).parents[2] / "benchmarks" / "gate_suite" / "test_suite.py"
INJECTED = {
    "matmul": "fp32 fallback",
    "linear_gelu": "extra pass",
    "attention": "slower tiles",
    "softmax": "lost fusion",
    "small_layers": "lost CUDA graph",
}
SHARE = 0.05
PAIRS = 5


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
    plugin = () if found else ("-p", "gpuprof.profiler.pytest_plugin")
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

    running = start(0)
    for index, job in enumerate(jobs):
        following = start(index + 1) if index + 1 < len(jobs) else None
        begin = time.monotonic()
        (folder / f"{index:03d}.ready").touch()
        status = running.wait(timeout=120)
        if status != 0:
            print((folder / f"{index:03d}.log").read_text()[-2000:])
            raise SystemExit(f"process {index} ended with {status}")
        yield job, folder / f"{index:03d}", time.monotonic() - begin
        if following is None:
            return
        if time.monotonic() > end:
            following.kill()
            return
        running = following


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


def pairs(count: int, test: str, inject: str, profiled: int) -> list[Job]:
    """AB BA AB ..."""
    jobs = []
    for pair in range(count):
        order: tuple[Side, Side] = ("A", "B") if pair % 2 == 0 else ("B", "A")
        jobs += [
            Job(side, pair, side == order[0], test, inject if side == "B" else "", profiled)
            for side in order
        ]
    return jobs


def caught(name: str, processes: Sequence[MeasuredProcess], folders: dict[Side, Path]) -> str:
    """A line on one injected slow-down: the verdict and what carries it."""
    judgements = judge_suite(processes, Rules(RuleSettings()), today=date.today(), give_up=True)
    timed = next(j for j in judgements if j.metric.name == "time")
    paths = [next(folders[side].glob("*.gpuprof")) for side in ("A", "B")]
    comparison = compare(*map(load_analysis, paths))
    culprits = Explanation(benchmark=name, comparison=comparison).culprits
    first = culprits[0].name[:60] if culprits else "none"
    return (
        f"{INJECTED[name]:16} {name:13} {timed.verdict:13} {timed.change or 0:+7.2%} "
        f"p {timed.p_worse or 0:.1e}  detects {timed.smallest_detectable or 0:.1%}  first: {first}"
    )


def main() -> None:
    """Run the visit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--processes", type=int, default=60)
    parser.add_argument("--no-injections", action="store_true")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    arguments.output.mkdir(parents=True, exist_ok=True)
    everything: dict[str, list[MeasuredProcess]] = {}
    lines = []
    for name in () if arguments.no_injections else INJECTED:
        jobs = pairs(PAIRS, name, f"{name}={SHARE}", 1)
        done = everything[name] = []
        folders: dict[Side, Path] = {}
        for job, folder, seconds in run_jobs(jobs, arguments.output / name, end):
            done.append(measured(job, folder, seconds))
            folders.setdefault(job.side, folder)
        if len(done) < len(jobs):
            print(f"{name}: the time is up")
            continue
        lines.append(caught(name, done, folders))
        print(f"{lines[-1]}  ({done[-1].seconds} s a process)", flush=True)
    done = everything["suite"] = []
    for job, folder, seconds in run_jobs(
        pairs(arguments.processes // 2, "", "", 0), arguments.output / "suite", end
    ):
        done.append(measured(job, folder, seconds))
        print(f"A/A {len(done)}: {seconds:.1f} s", flush=True)
        (arguments.output / "processes.json").write_bytes(msgspec.json.encode(everything))
        # As tests/data/gate holds recordings.
        (arguments.output / "suite.json.gz").write_bytes(gzip.compress(msgspec.json.encode(done)))
    print(f"\n{len(done)} A/A processes of the suite")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
