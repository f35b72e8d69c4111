"""Runs a program for Nsight Compute: nothing is recorded, only the steps are found.

`python -m gpuprof.profiler.run.counted_program [options] (script|module|command) TARGET [args ...]`
is what `gpuprof run --counters` starts under `ncu`. After the warm-up steps it opens the window in
which ncu counts (cudaProfilerStart). The program ends with that step, or when its time is up: what
was counted until then is kept.
"""

import argparse
import sys
from typing import TYPE_CHECKING

from gpuprof.collectors.live.module_import import once_imported
from gpuprof.collectors.manifest import Schedule
from gpuprof.profiler.run.counting_time import end_after, end_now
from gpuprof.profiler.run.script import RunTarget, execute, prepare
from gpuprof.profiler.run.session_options import SessionOptions

if TYPE_CHECKING:
    from gpuprof.profiler.run.session import Session


def main() -> None:
    """Run the program in the arguments; what it raises propagates, as python would have it."""
    arguments = _parse()
    program = prepare(RunTarget(arguments.kind, arguments.target, tuple(arguments.arguments)))
    options = SessionOptions(
        schedule=Schedule(warmup=max(arguments.warmup, 1), timed=0, profiled=0),
        steps=arguments.steps,
        step_range=arguments.step_range,
        first_look=False,
    )
    sessions: list[Session] = []

    def begin() -> None:
        if arguments.from_start:
            end_after(arguments.seconds)
            return
        from gpuprof.profiler.run.session import Session

        session = Session(options, on_step=_Window(arguments.seconds).step)
        session.start()
        sessions.append(session)

    try:
        with once_imported("torch", begin):
            execute(program, arguments.arguments)
    finally:
        for session in sessions:
            session.finish()
            session.close()


class _Window:
    """The step in which ncu counts: the first after the warm-up steps."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_open = False

    def step(self, phase: str, _: int) -> None:
        """Told after each step; nothing of the program runs after the one that is counted.

        It ran once before.
        """
        if phase != "later":
            return
        from gpuprof.collectors.live import cuda

        if not cuda.in_use():
            return
        cuda.synchronize()
        if self._is_open:
            end_now()
        self._is_open = True
        cuda.start_other_profiler()
        end_after(self._seconds)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpuprof.profiler.run.counted_program")
    parser.add_argument("--warmup", type=int, default=3)
    # Of counting: from the window's begin, or from the import of torch on.
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--from-start", action="store_true")
    parser.add_argument("--steps")
    parser.add_argument("--step-range")
    parser.add_argument("kind", choices=("script", "module", "command"))
    parser.add_argument("target")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main()
