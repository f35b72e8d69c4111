"""Runs a program for Nsight Compute: nothing is recorded, only the steps are found.

`python -m gpuprof.profiler.run.counted_program [options] (script|module|command) TARGET [args ...]`
is what `gpuprof run --counters` starts under `ncu`. After the warm-up steps it opens the window in
which ncu counts (cudaProfilerStart); ncu ends the program once it has counted enough.
"""

import argparse
import sys
from typing import TYPE_CHECKING

from gpuprof.collectors.live.module_import import once_imported
from gpuprof.collectors.manifest import Schedule
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
        from gpuprof.profiler.run.session import Session

        session = Session(options, on_profiled=_open_window)
        session.start()
        sessions.append(session)

    try:
        with once_imported("torch", begin):
            execute(program, arguments.arguments)
    finally:
        for session in sessions:
            session.finish()
            session.close()


def _open_window(_: "Session") -> None:
    """The warm-up steps are done."""
    from gpuprof.collectors.live import cuda

    if cuda.in_use():
        cuda.synchronize()
        cuda.start_other_profiler()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpuprof.profiler.run.counted_program")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps")
    parser.add_argument("--step-range")
    parser.add_argument("kind", choices=("script", "module", "command"))
    parser.add_argument("target")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main()
