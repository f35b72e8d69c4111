"""How fast and in how much memory is a PyTorch trace read, against other tools and on fewer cores?

    python benchmarks/kineto_speed.py TRACE [--rounds N] [--hta PYTHON] [--tracelens PYTHON]
                                      [--cores N ...]

Each tool runs in a process of its own, with the interpreter of an environment that has it:
gpuprof with this one, HTA (HolisticTraceAnalysis) and TraceLens where their options name one. The
rounds are interleaved, so that a machine that drifts does not count. Seconds exclude the start of
the interpreter and imports; CPU seconds are those of all threads, which another program on the
machine changes less; memory is the largest resident set of the process.

    gpuprof    reads the file, attributes the kernels and analyses them; with --cores once more on
               so many of the cores that there are
    HTA        loads the file, then its kernel and its temporal breakdown
    TraceLens  writes its performance report
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_GPUPROF = """
from gpuprof.collectors import kineto
from gpuprof.roofline.analyze import analyze
def work(trace, folder):
    analyze(kineto.read(Path(trace)))
"""
_HTA = """
import logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
def work(trace, folder):
    analysis = TraceAnalysis(trace_files={0: trace}, trace_dir=folder)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_temporal_breakdown(visualize=False)
"""
_TRACELENS = """
from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch
def work(trace, folder):
    generate_perf_report_pytorch(trace, output_csvs_dir=folder)
"""
# Runs in the tool's own interpreter; what the tool prints must not mix with the result.
_CHILD = """
import contextlib, json, os, resource, sys, time
from pathlib import Path
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{cores}])
{tool}
started, begun = time.perf_counter(), time.process_time()
with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
    work(sys.argv[1], sys.argv[2])
seconds, cpu = time.perf_counter() - started, time.process_time() - begun
print(json.dumps([seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


@dataclass(frozen=True)
class Tool:
    """A tool to measure: its name, its interpreter, what it runs, and on how many cores."""

    name: str
    python: str
    code: str
    cores: int


ALL_CORES = len(os.sched_getaffinity(0))


def gpuprof(cores: int = ALL_CORES) -> Tool:
    """This one, on so many cores."""
    name = "gpuprof" if cores == ALL_CORES else f"gpuprof, cores: {cores}"
    return Tool(name, sys.executable, _GPUPROF, cores)


def peers(hta: str | None, tracelens: str | None) -> list[Tool]:
    """The others, by the interpreters of their environments."""
    tools = (("HTA", hta, _HTA), ("TraceLens", tracelens, _TRACELENS))
    return [Tool(name, python, code, ALL_CORES) for name, python, code in tools if python]


@dataclass(frozen=True)
class Run:
    """One process: seconds of work, of how many on a core, and the largest resident set."""

    seconds: float
    cpu_seconds: float
    memory_bytes: int


def measure(tool: Tool, trace: Path) -> Run:
    """Run one tool once."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                tool.python,
                "-c",
                _CHILD.format(tool=tool.code, cores=tool.cores),
                str(trace.absolute()),
                folder,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(f"{tool.name} failed on {trace}:\n{done.stderr[-2000:]}")
    seconds, cpu_seconds, kilobytes = json.loads(done.stdout.splitlines()[-1])
    return Run(seconds, cpu_seconds, kilobytes * 1024)


def row(tool: Tool, runs: list[Run], trace_bytes: int, reference: float) -> str:
    """One line of the table; `reference` is gpuprof's median in seconds."""
    seconds = statistics.median(run.seconds for run in runs)
    memory = statistics.median(run.memory_bytes for run in runs)
    cpu = statistics.median(run.cpu_seconds for run in runs)
    spread = (max(run.seconds for run in runs) - min(run.seconds for run in runs)) / seconds
    return (
        f"{tool.name:18} {seconds:9.2f} {spread:7.0%} {cpu:9.2f} "
        f"{trace_bytes / seconds / 1e6:9.0f} {memory / 1e6:9.0f} {seconds / reference:9.1f}"
    )


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta", metavar="PYTHON", help="interpreter of an environment with HTA")
    parser.add_argument("--tracelens", metavar="PYTHON", help="the same for TraceLens")
    parser.add_argument("--cores", type=int, nargs="+", default=[], metavar="N")
    arguments = parser.parse_args()
    tools = [gpuprof(), *(gpuprof(cores) for cores in arguments.cores if cores < ALL_CORES)]
    tools += peers(arguments.hta, arguments.tracelens)
    runs: dict[str, list[Run]] = {tool.name: [] for tool in tools}
    for _ in range(arguments.rounds):
        for tool in tools:
            runs[tool.name].append(measure(tool, arguments.trace))
    size = arguments.trace.stat().st_size
    reference = statistics.median(run.seconds for run in runs["gpuprof"])
    print(
        f"{arguments.trace.name}, {size / 1e6:.0f} MB, {arguments.rounds} rounds, medians; "
        f"{ALL_CORES} cores, load {os.getloadavg()[0]:.1f}"
    )
    print(
        f"{'tool':18} {'s':>9} {'spread':>7} {'CPU s':>9} {'MB/s':>9} {'RSS MB':>9} "
        f"{'x gpuprof':>9}"
    )
    for tool in tools:
        print(row(tool, runs[tool.name], size, reference))


if __name__ == "__main__":
    main()
