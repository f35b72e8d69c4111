"""`gpuprof run`: profile a program that knows nothing about it."""

import argparse
import os
import time
from pathlib import Path

from gpuprof.collectors.errors import CommandError

# The names of gpuprof.collectors.step_sources, which imports torch; "script" is none of them.
STEP_KINDS = ("explicit", "profiler", "range", "optimizer", "forward", "script")


class RunCommand:
    """Profile a script, module or command without editing it.

    The program runs as python would run it, in this process: its arguments, its
    output and its exit code are its own. Steps are found, a few are timed with no
    profiler attached, a few more are profiled, and the rest runs untouched.
    """

    name = "run"
    summary = "run a program and profile some of its steps"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.usage = "gpuprof run [options] (script.py | -m module | -c code) [args ...]"
        kind = parser.add_mutually_exclusive_group()
        kind.add_argument("-m", dest="module", action="store_true", help="the target is a module")
        kind.add_argument("-c", dest="code", action="store_true", help="the target is Python code")
        parser.add_argument("target", help="script, module or code; options end here")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")
        parser.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="CAPTURE",
            help="folder to write (gpuprof-TARGET-TIME.gpuprof here)",
        )
        parser.add_argument("-f", "--force", action="store_true", help="replace an old capture")
        parser.add_argument("-q", "--quiet", action="store_true", help="print no summary")
        parser.add_argument(
            "--steps",
            choices=STEP_KINDS,
            help="where steps come from (default: the first of these that shows any)",
        )
        parser.add_argument(
            "--step-range", metavar="NAME", help="an NVTX range of this name begins each step"
        )
        for phase, count, meaning in (
            ("warmup", 3, "steps before anything is timed"),
            ("timed", 10, "steps timed with no profiler attached"),
            ("profiled", 3, "steps profiled after that"),
        ):
            parser.add_argument(
                f"--{phase}", type=_count, default=count, metavar="N", help=f"{meaning} ({count})"
            )
        parser.add_argument(
            "--stop-after", action="store_true", help="end the program after the profiled steps"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. The exit code is the program's."""
        # Kineto would tell of each start and stop of a profiler on the script's stderr. It looks
        # at this when torch is imported; the levels of its messages end below 99.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        from gpuprof.collectors import storage
        from gpuprof.collectors.manifest import Schedule
        from gpuprof.profiler.run_target import run_target
        from gpuprof.profiler.script import Target
        from gpuprof.profiler.session import Options

        kind = "module" if arguments.module else "command" if arguments.code else "script"
        target = Target(kind, arguments.target, tuple(arguments.arguments))
        if (arguments.steps == "range") != (arguments.step_range is not None):
            if arguments.steps is not None:
                raise CommandError("--steps range and --step-range NAME go together", exit_code=2)
        output = arguments.output or default_output(target.stem)
        storage.refuse_existing_capture(output, force=arguments.force)
        options = Options(
            schedule=Schedule(
                warmup=arguments.warmup, timed=arguments.timed, profiled=arguments.profiled
            ),
            steps=arguments.steps,
            step_range=arguments.step_range,
            stop_after=arguments.stop_after,
        )
        return run_target(target, options, output, quiet=arguments.quiet)


def default_output(stem: str) -> Path:
    """A folder in the working directory named after the target and the time.

    The ranks of one `torchrun` must agree on it: the port they meet at stands for the time there.
    """
    port = os.environ.get("MASTER_PORT")
    if port is not None and os.environ.get("WORLD_SIZE", "1") != "1":
        return Path(f"gpuprof-{stem}-port{port}.gpuprof")
    return Path(f"gpuprof-{stem}-{time.strftime('%Y%m%d-%H%M%S')}.gpuprof")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps: 0, 1, 2, ...")
    return int(text)
