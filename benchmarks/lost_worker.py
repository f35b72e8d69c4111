"""A worker is lost while `gpuprof analyze FOLDER --workers 2` reads a thousand ranks.

    nice python benchmarks/lost_worker.py RECORDINGS FOLDER [--ranks 1024] [--workers 2]

Writes ranks made of RECORDINGS, as benchmarks/thousand_ranks.py does, starts the command on them,
kills one of its workers in the middle, and prints what the command took and which of the planted
facts its analysis holds. Ends with 1 where one is missing.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

from synthetic_ranks import WRONG_CLOCK_NS, Planted, write_ranks

from gpuprof.profiler.captures import load_analysis
from gpuprof.roofline.analysis import Analysis

# What a worker is killed after, as a part of what one of them has to do.
_KILLED_AFTER = 0.4
# Processor time that reading a rank takes, about.
_RANK_S = 0.25
_WATCHED_EVERY_S = 0.2


def main() -> int:
    """Run the command, kill, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    traces = arguments.folder / f"ranks_{arguments.ranks}"
    traces.mkdir(parents=True, exist_ok=True)
    planted = write_ranks(arguments.recordings, traces, arguments.ranks)
    output = arguments.folder / f"ranks_{arguments.ranks}.gpuprof"
    command = [sys.executable, "-m", "gpuprof", "analyze", str(traces), "--force"]
    command += ["--workers", str(arguments.workers), "--output", str(output)]
    after_s = _KILLED_AFTER * _RANK_S * arguments.ranks / arguments.workers
    _watch(subprocess.Popen(command), after_s)
    missing = [name for name, found in _facts(load_analysis(output), planted).items() if not found]
    print("missing: " + ", ".join(missing) if missing else "all that is planted is found")
    return 1 if missing else 0


def _watch(process: "subprocess.Popen[bytes]", after_s: float) -> None:
    """Kill a worker of the command after `after_s` of processor time; print what was used."""
    command = psutil.Process(process.pid)
    victim = None
    worker_bytes = command_bytes = 0
    started = time.perf_counter()
    while process.poll() is None:
        time.sleep(_WATCHED_EVERY_S)
        try:
            command_bytes = max(command_bytes, command.memory_info().rss)
            for worker in _workers(command):
                worker_bytes = max(worker_bytes, worker.memory_info().rss)
                used = worker.cpu_times()
                if victim is None and used.user + used.system > after_s:
                    victim = worker.pid
                    worker.kill()
                    print(f"killed a worker after {time.perf_counter() - started:.0f} s")
        except psutil.NoSuchProcess:
            continue
    used = os.times()
    print(f"exit code {process.returncode} after {time.perf_counter() - started:.0f} s")
    print(f"processor time {used.children_user + used.children_system:.0f} s, with its workers'")
    print(f"largest worker {worker_bytes / 1e6:.0f} MB, command {command_bytes / 1e6:.0f} MB")
    if victim is None:
        print("no worker worked long enough to be killed")


def _workers(command: psutil.Process) -> Iterator[psutil.Process]:
    for child in command.children():
        if "spawn_main" in " ".join(child.cmdline()):
            yield child


def _facts(analysis: Analysis, planted: Planted) -> dict[str, bool]:
    """Whether each planted fact is in the analysis."""
    assert analysis.ranks is not None
    late = {each.rank: each for each in analysis.ranks.stragglers}
    clocks = analysis.ranks.clocks
    offsets = {} if clocks is None else {each.rank: each.offset_ns for each in clocks.clocks}
    warned = "\n".join(analysis.warnings)
    others = [rank.rank for rank in analysis.ranks.ranks]
    extra, slow = late.get(planted.extra_work), late.get(planted.slow_device)
    return {
        "the lost worker": "a worker was lost; read again by others:" in warned,
        "the unreadable rank": planted.unreadable is None
        or f"rank{planted.unreadable}.json.gz" in warned,
        "every other rank": others
        == [rank for rank in range(planted.ranks) if rank != planted.unreadable],
        "the halved file": any(
            planted.halved in each.ranks for each in analysis.ranks.disagreements
        ),
        "the extra work": extra is not None
        and extra.pattern == "persistent"
        and extra.causes[0].kind == "more work",
        "the slow device": slow is not None
        and {cause.kind for cause in slow.causes} == {"slower work"},
        "the wrong clock": abs(offsets.get(planted.wrong_clock, 0) - WRONG_CLOCK_NS) < 2e6,
    }


if __name__ == "__main__":
    sys.exit(main())
