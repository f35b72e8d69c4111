"""What does `gpuprof run` cost a program, before it, in it and after it?

    python benchmarks/run_overhead.py [--rounds N] [--steps N] [--layers N]

A training loop on the CPU runs under python and under `gpuprof run`, one after the other in each
round. Printed are medians over the rounds, and ratios to python in the same round: the time from
the start of the process to the script's first line, that of its imports and first step, and from
its last line to the end of the process; and the longest step after the first ones, in median steps
of its own run: what the end of the profiled steps costs the loop. The ceilings of this CPU, which
are measured once a machine, are made up: a busy machine would measure them in every run.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from gpuprof.collectors.live.fingerprint import cpu_device
from gpuprof.collectors.manifest import Calibration, MeasuredCeiling
from gpuprof.profiler.machine import calibration_cache

PROGRAM = """
import time
lines = [time.time()]
import json, sys
import torch
# With more threads than free cores a step waits for the one that waits for its core.
torch.set_num_threads(int(sys.argv[3]))
layers = int(sys.argv[2])
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(layers)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(128, 256)
for _ in range(int(sys.argv[1])):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    lines.append(time.time())
print(json.dumps(lines))
"""
# Steps that python itself takes longer for.
_FIRST = 3
KINDS = ("python", "gpuprof run")
PARTS = ("before", "first step", "after", "longest step")
_THREADS = 1


def measure(command: list[str], folder: Path) -> dict[str, float]:
    """Seconds of one process by part, and its longest step in median steps."""
    start = time.time()
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    end = time.time()
    begun, first, *rest = json.loads(done.stdout.splitlines()[-1])
    marks = [first, *rest]
    steps = [later - earlier for earlier, later in itertools.pairwise(marks[_FIRST:])]
    return {
        "before": begun - start,
        "first step": first - begun,
        "after": end - marks[-1],
        "longest step": max(steps) / statistics.median(steps),
    }


def measure_in_turns(rounds: int, steps: int, layers: int) -> list[dict[str, dict[str, float]]]:
    """What `measure` says of each of `KINDS` in each round."""
    own = [str(steps), str(layers), str(_THREADS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        os.environ["XDG_CACHE_HOME"] = name
        calibration_cache.store(_made_up_calibration())
        run = ["-m", "gpuprof", "run", "-f", "-o", "out.gpuprof", "program.py", *own]
        commands = dict(
            zip(KINDS, ([sys.executable, "program.py", *own], [sys.executable, *run]), strict=True)
        )
        measure(commands[KINDS[1]], folder)
        return [
            {name: measure(command, folder) for name, command in commands.items()}
            for _ in range(rounds)
        ]


def _made_up_calibration() -> Calibration:
    memory = MeasuredCeiling(
        kind="memory", name="DRAM", level="DRAM", rate=1e10, spread=0.01, repeats=3
    )
    vector = MeasuredCeiling(
        kind="compute", name="fp32", precision="fp32", rate=1e11, spread=0.01, repeats=3
    )
    return Calibration(
        device=cpu_device(),
        torch=str(torch.__version__),
        threads=_THREADS,
        measured_ns=0,
        ceilings=(memory, vector),
    )


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", type=int, default=24)
    arguments = parser.parse_args()
    rounds = measure_in_turns(arguments.rounds, arguments.steps, arguments.layers)
    print(f"{os.cpu_count()} cores, {arguments.rounds} rounds")
    print(f"{'':14} {'python':>10} {'gpuprof run':>12} {'ratio':>7}")
    for part in PARTS:
        medians = {name: statistics.median(one[name][part] for one in rounds) for name in KINDS}
        ratio = statistics.median(one["gpuprof run"][part] / one["python"][part] for one in rounds)
        unit = "steps" if part == "longest step" else "s"
        print(
            f"{part:14} {medians['python']:6.2f} {unit:<5}{medians['gpuprof run']:6.2f} {unit:<5}"
            f" {ratio:7.1f}"
        )


if __name__ == "__main__":
    main()
