"""What does one process of the gate cost beside its program alone, and beside another gpuprof?

    python benchmarks/gate_process.py [--against SRC] [--rounds N] [SCRIPT]

SCRIPT runs as the gate runs it: with profiled steps, and for times alone; as plain python, for as
many steps; and as the gpuprof whose `src` folder is SRC runs it. All take turns. Printed are the
CPU time of the process with all that it starts, of which the least round is the least disturbed,
and the wall time in the median; the last column divides both by those of the first row. Linux.
"""

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SCRIPT = """\
import sys
import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
data, labels = torch.randn(64, 128), torch.randint(0, 10, (64,))
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data), labels).backward()
    optimizer.step()
"""
STEPS = ("--warmup", "5", "--timed", "20")
# Steps that the gate's process takes: warm-up, timed, and for the profiler one more than asked.
ALONE, ENDLESS = "28", "100000"
KINDS = ("script alone", "gate, times alone", "gate, profiled")
# Makes this process the parent of what its children leave behind, so that it is counted.
PR_SET_CHILD_SUBREAPER = 36


class Cost(NamedTuple):
    """Of one process and all that it started."""

    cpu_s: float
    wall_s: float


def cost(command: list[str], source: str, folder: str) -> Cost:
    """Run `command` with the packages of `source`. Raises `CalledProcessError` where it fails."""
    environment = {**os.environ, "PYTHONPATH": source}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=None
    )
    wall_s = time.monotonic() - start
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user_s, system_s = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Cost(user_s + system_s, wall_s)


def measure_in_turns(
    rounds: int, source: str, against: Path | None = None
) -> dict[str, list[Cost]]:
    """What each of `KINDS`, and the gpuprof of `against`, costs in each round."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    here = str(Path(__file__).resolve().parents[1] / "src")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(source)
        run = [sys.executable, "-m", "gpuprof", "run", "--quiet", "--force", "--stop-after"]
        run += ["-o", "capture", *STEPS]
        lean = [*run, "--no-ceilings", "--profiled"]
        cases = {
            KINDS[0]: ([sys.executable, "train.py", ALONE], here),
            KINDS[1]: ([*lean, "0", "train.py", ENDLESS], here),
            KINDS[2]: ([*lean, "2", "train.py", ENDLESS], here),
        }
        if against is not None:
            before = [*run, "--profiled", "2", "train.py", ENDLESS]
            cases["the other, profiled"] = (before, str(against.resolve()))
        costs: dict[str, list[Cost]] = {name: [] for name in cases}
        # The first round reads files that the others have in memory.
        for number in range(rounds + 1):
            for name, (command, packages) in cases.items():
                measured = cost(command, packages, folder)
                costs[name] += [measured] if number else []
    return costs


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("script", nargs="?", type=Path, help="takes a number of steps")
    parser.add_argument("--against", type=Path, metavar="SRC", help="src of another gpuprof")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    source = SCRIPT if options.script is None else options.script.read_text()
    costs = measure_in_turns(options.rounds, source, options.against)
    base: Cost | None = None
    print(f"{'process':24} {'CPU s':>6} {'wall s':>7}  ratio of CPU, of wall")
    for name, found in costs.items():
        own = Cost(min(c.cpu_s for c in found), statistics.median(c.wall_s for c in found))
        base = base or own
        ratios = f"{own.cpu_s / base.cpu_s:6.2f} {own.wall_s / base.wall_s:6.2f}"
        print(f"{name:24} {own.cpu_s:6.2f} {own.wall_s:7.2f}  {ratios}")


if __name__ == "__main__":
    main()
