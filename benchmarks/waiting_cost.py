"""What does it cost a step that `gpuprof run --wait` waits for requests?

    python benchmarks/waiting_cost.py [--rounds N] [--steps N] [--step-ms MS]

One process, in which blocks of steps take turns: as without gpuprof, with the signal's handler
installed (`--wait`), and with steps followed too (`--at-step`, `--slower-than-p95`). A step is one
of an optimizer and nothing else, so that what waiting adds is not lost in what other programs do
to a longer one. Printed is how much longer the fastest block of each kind is than the fastest
without, by what the thread ran, and what share of a step of `--step-ms` that is. Blocks without are
there twice, which shows what is noise.
"""

import argparse
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from gpuprof.profiler.run.on_demand.program_steps import ProgramSteps
from gpuprof.profiler.run.on_demand.request_signals import RequestSignal
from gpuprof.profiler.run.on_demand.slow_steps import SlowStepDetector
from gpuprof.profiler.run.session_options import SessionOptions

# Until the object that marks steps is known for sure.
_SETTLES = 128


class Program:
    """Steps that are one step of an optimizer of one small parameter."""

    def __init__(self, device: str) -> None:
        parameter = torch.nn.Parameter(torch.ones(16, device=device))
        parameter.grad = torch.zeros_like(parameter)
        self._optimizer = torch.optim.SGD([parameter], lr=0.1)
        self.run(_SETTLES)

    def run(self, steps: int) -> float:
        """The microseconds that the thread ran for a step in a block of so many."""
        start = time.thread_time()
        for _ in range(steps):
            self._optimizer.step()
        return (time.thread_time() - start) * 1e6 / steps


@contextmanager
def hearing() -> Iterator[None]:
    """As `--wait` alone."""
    with RequestSignal(signal.SIGUSR2.value, lambda frame: None, lambda: None).watching():
        yield


@contextmanager
def following(program: Program) -> Iterator[None]:
    """With steps counted and compared, and the object that marks them known."""
    slow = SlowStepDetector(1e9)

    def stepped(_: int, length_ns: int | None) -> None:
        if length_ns is not None:
            slow.is_slow(length_ns)

    steps = ProgramSteps(SessionOptions(), stepped)
    with hearing():
        steps.install()
        program.run(_SETTLES)
        try:
            yield
        finally:
            steps.remove()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--step-ms", type=float, default=2.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    program = Program("cuda" if torch.cuda.is_available() else "cpu")
    modes: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "without": nullcontext,
        "--wait": hearing,
        "following steps": lambda: following(program),
        "without, again": nullcontext,
    }
    blocks_us: dict[str, list[float]] = {name: [] for name in modes}
    for _ in range(arguments.rounds):
        for name, mode in modes.items():
            with mode():
                blocks_us[name].append(program.run(arguments.steps))
    without_us = min(blocks_us["without"])
    print(f"a step of the optimizer alone: {without_us:.2f} us")
    for name, found_us in blocks_us.items():
        longer_us = min(found_us) - without_us
        share = longer_us / (arguments.step_ms * 1e3)
        print(f"{name:16} {longer_us:+.2f} us, {share:+.3%} of a step of {arguments.step_ms} ms")


if __name__ == "__main__":
    main()
