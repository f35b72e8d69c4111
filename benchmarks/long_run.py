"""What does a long job cost under `gpuprof run`, once its profiled steps are done?

    python benchmarks/long_run.py [--steps N] [--processes N] [--layers N] [--kinds KIND ...]

A training loop on the CPU runs alone, alone once more, and under gpuprof, in processes that take
turns: each makes a block of steps while the others wait, so that what the machine does besides
hits all of them, and before it some that are not timed. Printed are the medians over the rounds of
a block's time in that of the block alone of the same round, of processor time and by the clock,
with the 95 % interval; and memory and threads as steps go on. "alone again" tells what the machine
and the layout of a process's memory make of equal programs, which is up to 2 %; --processes repeats
everything with fresh ones. How much memory a block touches, of which caches and page tables hold a
part, does not depend on what else runs. What a mark itself takes is in watch_cost.py.

Memory is anonymous memory, in which files and libraries do not count: of the program, and of all
processes of its session, each page divided by those that share it.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from scipy.stats import bootstrap

PROGRAM: Final = """
import json, mmap, sys, time
import torch
import gpuprof
# With more threads than free cores a step waits for the one that waits for its core.
torch.set_num_threads(1)
layers, marks = int(sys.argv[1]), sys.argv[2] == "marks"
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(layers)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(64, 256)
def steps(count):
    for _ in range(count):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if marks:
            gpuprof.step()
for line in sys.stdin:
    # Giving many pages back empties the core's table of pages: those in it are not noted again.
    with mmap.mmap(-1, 1 << 20) as pages:
        pages.write(bytes(1 << 20))
    # Others had the core and its caches meanwhile.
    steps(int(line) // 4)
    clock, processor = time.perf_counter_ns(), time.process_time_ns()
    steps(int(line))
    spent = [time.process_time_ns() - processor, time.perf_counter_ns() - clock]
    print(json.dumps(spent), flush=True)
"""
# gpuprof's options, and whether the program marks its steps.
KINDS: Final[dict[str, tuple[Sequence[str] | None, bool]]] = {
    "alone": (None, False),
    "alone again": (None, False),
    "run": ((), False),
    "run, marked": ((), True),
    "run --watch": (("--watch",), False),
}
_BLOCK_STEPS: Final = 40
# With those before it that are not timed.
_STEPS_A_ROUND: Final = _BLOCK_STEPS + _BLOCK_STEPS // 4
# What gpuprof profiles comes before, and what it stores right after.
_FIRST_STEPS: Final = 1000
# The program, and the process that will store its capture.
_IDLE_PROCESSES: Final = 2
_TOUCHING_BLOCKS: Final = 5
# Of a line of smaps that names a mapping, after its addresses.
_WORDS_WITHOUT_FILE: Final = 4
_LOOKS_AT: Final = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)


@dataclass(frozen=True)
class Memory:
    """Of one process, or of several together."""

    anonymous_bytes: float
    threads: int

    def __str__(self) -> str:
        return f"{self.anonymous_bytes / 1e6:.1f} MB, {self.threads}"


class Loop:
    """One process of the program, which makes steps when it is told to."""

    def __init__(self, kind: str, layers: int, folder: Path) -> None:
        options, marks = KINDS[kind]
        own = [str(folder / "program.py"), str(layers), "marks" if marks else ""]
        gpuprof: list[str] = []
        if options is not None:
            output = folder / f"{kind.replace(' ', '-')}.gpuprof"
            gpuprof = ["-m", "gpuprof", "run", "-q", "-f", "-o", str(output), *options]
        self._process = subprocess.Popen(
            [sys.executable, *gpuprof, *own],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def block(self, steps: int) -> tuple[float, float]:
        """Processor time and time by the clock of so many steps, in nanoseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        processor_ns, clock_ns = json.loads(self._process.stdout.readline())
        return processor_ns, clock_ns

    def wait_for_storing(self) -> None:
        """Return once nothing of the profiled steps is being read: it takes the core's caches."""
        while len(self._session()) > _IDLE_PROCESSES:
            time.sleep(0.2)

    def _session(self) -> list[Path]:
        own = self._process.pid
        return [path for path in Path("/proc").glob("[0-9]*") if _session(path) == own]

    def memory(self) -> tuple[Memory, Memory]:
        """Of the program's process, and of all processes of its session."""
        each = {path.name: _memory(path) for path in self._session()}
        return each[str(self._process.pid)], Memory(
            sum(found.anonymous_bytes for found in each.values()),
            sum(found.threads for found in each.values()),
        )

    def touched_bytes(self) -> int:
        """The memory, but for files, that a block touches: what caches and page tables hold.

        The least of some, as a garbage collection touches everything.
        """
        own = Path("/proc", str(self._process.pid))
        found = []
        for _ in range(_TOUCHING_BLOCKS):
            (own / "clear_refs").write_text("1")
            self.block(_BLOCK_STEPS)
            found.append(_referenced_bytes(own / "smaps"))
        return min(found)

    def end(self) -> None:
        """Let the program end as it does by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _session(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[3])
    except (OSError, IndexError):
        # It has ended.
        return None


def _memory(process: Path) -> Memory:
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
        threads = len(list((process / "task").iterdir()))
    except OSError:
        return Memory(0, 0)
    kilobytes = next((line.split()[1] for line in lines if line.startswith("Pss_Anon:")), "0")
    return Memory(float(kilobytes) * 1024, threads)


def _referenced_bytes(smaps: Path) -> int:
    kilobytes, is_counted = 0, False
    for line in smaps.read_text().splitlines():
        first, *words = line.split()
        if not first.endswith(":"):
            # The address, then four more words, and the file where there is one.
            is_counted = len(words) == _WORDS_WITHOUT_FILE or words[-1] == "[heap]"
        elif first == "Referenced:" and is_counted:
            kilobytes += int(words[0])
    return kilobytes * 1024


def measure(kinds: Sequence[str], steps: int, layers: int, *, looks: bool) -> dict[str, np.ndarray]:
    """Blocks of all `kinds` in turns: by kind, a row of two times for each round.

    With `looks` the memory is printed as steps go on. Ctrl-C ends it with what there is.
    """
    rounds: list[dict[str, tuple[float, float]]] = []
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "program.py").write_text(PROGRAM)
        loops = {kind: Loop(kind, layers, Path(name)) for kind in kinds}
        for loop in loops.values():
            loop.block(_FIRST_STEPS * _BLOCK_STEPS // _STEPS_A_ROUND)
        for loop in loops.values():
            loop.wait_for_storing()
        numbers, order = random.Random(0), list(kinds)
        for done in range(_FIRST_STEPS, steps + 1, _STEPS_A_ROUND):
            if looks and done in _LOOKS_AT:
                found = "   ".join(f"{own} | {every}" for own, every in _looks(loops))
                print(f"{done:8,}   {found}", flush=True)
            try:
                rounds.append({kind: loops[kind].block(_BLOCK_STEPS) for kind in order})
            except KeyboardInterrupt:
                break
            # No kind always runs after the same other one.
            numbers.shuffle(order)
        if looks:
            found = (f"{loop.touched_bytes() / 1e6:.1f} MB" for loop in loops.values())
            print(f"{'touched':>8}   " + "   ".join(f"{each:>25}" for each in found))
        for loop in loops.values():
            loop.end()
    return {kind: np.array([each[kind] for each in rounds]) for kind in kinds}


def _looks(loops: dict[str, Loop]) -> list[tuple[Memory, Memory]]:
    return [loop.memory() for loop in loops.values()]


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS)[1:])
    arguments = parser.parse_args()
    kinds = ["alone", *(kind for kind in arguments.kinds if kind != "alone")]
    print("anonymous memory and threads of the program | of all its processes")
    print(f"{'steps':>8}   " + "   ".join(f"{kind:>25}" for kind in kinds))
    repeats = [
        measure(kinds, arguments.steps, arguments.layers, looks=number == 0)
        for number in range(arguments.processes)
    ]
    alone_ns = np.concatenate([times["alone"] for times in repeats]) / _BLOCK_STEPS
    print(f"a step alone: {np.median(alone_ns[:, 0]) / 1e6:.3f} ms of processor time")
    print(f"{'in steps alone':16} {'processor time':>30} {'by the clock':>30}")
    for kind in kinds[1:]:
        ratios = np.concatenate([times[kind] / times["alone"] for times in repeats])
        cells = [f"{_with_interval(ratios[:, column]):>30}" for column in (0, 1)]
        each = ", ".join(
            f"{statistics.median(times[kind][:, 0] / times['alone'][:, 0]):.4f}"
            for times in repeats
        )
        print(f"{kind:16} {' '.join(cells)}   processes: {each}")


def _with_interval(values: np.ndarray) -> str:
    found = bootstrap((values,), np.median, n_resamples=999).confidence_interval
    return f"{np.median(values):.4f} ({found.low:.4f} to {found.high:.4f})"


if __name__ == "__main__":
    main()
