"""What does `gpuprof run --watch` cost a step, or `gpuprof run` without it?

    python benchmarks/watch_cost.py [--rounds N] [--steps N] [--step-ms MS] [--no-watch]

One process, in which blocks of steps with and without a mark at each step's end take turns, after
some seconds of marked steps alone: from those it is decided how many steps share a mark. A step
is as many small additions as take `--step-ms`: on a GPU where there is one, with its events then,
else on the CPU. Printed are the ratio of a marked step's time to an unmarked one's in the same
round, with the 95 % interval of its median over the rounds, what an unmarked block's ratio to the
one before it is (how much the machine itself varies), and what the thread ran for a mark.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable

import torch
from scipy.stats import bootstrap

from gpuprof.collectors.watched_steps import WatchedSteps
from gpuprof.profiler.run.later_steps import counting, read_clock, started_clock
from gpuprof.profiler.run.observations import Observations

_SETTLES_MS = 10_000
_NEVER_NS = 10**18


def calls_for(step_ms: float, operand: torch.Tensor) -> int:
    """How many additions to `operand` take so long."""
    # The first calls load code.
    block_ms(1, 64, operand, None)
    calls, took_ms = 64, 0.0
    while took_ms < step_ms:
        calls *= 2
        # Others may have the core meanwhile.
        took_ms = min(block_ms(1, calls, operand, None) for _ in range(3))
    return max(1, round(calls * step_ms / took_ms))


def block_ms(
    steps: int, calls: int, operand: torch.Tensor, mark: Callable[[], None] | None
) -> float:
    """The time of a step in a block of them, by the host once the device is done."""
    start = time.perf_counter()
    for _ in range(steps):
        for _ in range(calls):
            operand.add_(1)
        if mark is not None:
            mark()
    if operand.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3 / steps


def median_with_interval(values: list[float]) -> str:
    """The median, and the 95 % interval of it."""
    interval = bootstrap(([*values],), statistics.median, vectorized=False).confidence_interval
    return f"{statistics.median(values):.4f} ({interval.low:.4f} to {interval.high:.4f})"


def print_marks(seen: WatchedSteps) -> None:
    """What marks took, as they measured it themselves."""
    print(f"of the thread a mark took  {seen.mark_ns / 1e3:.1f} us")
    print(f"steps that share a mark    {seen.steps_per_mark}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--no-watch", dest="watch", action="store_false")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    operand = torch.zeros(16, device=device)
    calls = calls_for(arguments.step_ms, operand)
    clock = started_clock(watch=arguments.watch)
    mark = counting(lambda steps, due: clock.mark() if due else 0, every_ns=_NEVER_NS)
    # The share of marks in all the time: blocks without them would make it seem smaller.
    for _ in range(math.ceil(_SETTLES_MS / (arguments.step_ms * arguments.steps))):
        block_ms(arguments.steps, calls, operand, mark)
    marked, unmarked, plain = [], [], 0.0
    for _ in range(arguments.rounds):
        before = block_ms(arguments.steps, calls, operand, None)
        watched = block_ms(arguments.steps, calls, operand, mark)
        after = block_ms(arguments.steps, calls, operand, None)
        marked.append(2 * watched / (before + after))
        unmarked.append(after / before)
        plain = after
    seen = Observations(started_ns=0)
    read_clock(clock, seen)
    print(f"{device}, steps of {plain:.2f} ms: {calls} additions")
    print(f"with a mark over without   {median_with_interval(marked)}")
    print(f"without over without       {median_with_interval(unmarked)}")
    if seen.watched_steps is not None:
        print_marks(seen.watched_steps)


if __name__ == "__main__":
    main()
