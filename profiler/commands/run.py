"""`gpuprof run`: profile a program that knows nothing about it."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.commands import on_demand
from gpuprof.profiler.commands.step_options import (
    add_no_arguments,
    add_step_options,
    refuse_half_a_range,
)

if TYPE_CHECKING:
    from gpuprof.profiler.run.output import CaptureOutput
    from gpuprof.profiler.run.script import RunTarget

_PHASES: Final = ("warmup", "timed", "profiled")


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
        rest = parser.add_argument(
            "arguments", nargs=argparse.REMAINDER, help="the program's arguments"
        )
        # None is enough, but argparse would name them where there is no target.
        rest.required = False
        parser.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="CAPTURE",
            help="folder to write (gpuprof-TARGET-TIME.gpuprof here); NAME.html writes the page "
            "too, beside NAME.gpuprof",
        )
        parser.add_argument(
            "--open", action="store_true", help="write the page, and show it in a browser"
        )
        parser.add_argument("-f", "--force", action="store_true", help="replace an old capture")
        parser.add_argument("-q", "--quiet", action="store_true", help="print no summary")
        add_step_options(parser, warmup="3, and until a GPU has worked for 2 s")
        parser.add_argument(
            "--stop-after", action="store_true", help="end the program after the profiled steps"
        )
        parser.add_argument(
            "--watch",
            action="store_true",
            help="after the profiled steps watch every step: percentiles, and what slow ones had",
        )
        parser.add_argument(
            "--memory",
            action="store_true",
            help="keep the line of each allocation on a GPU, in timed steps too",
        )
        parser.add_argument(
            "--pm-sampling",
            action="store_true",
            help="sample the GPU's tensor, SM and DRAM activity every 100 us of the profiled steps",
        )
        parser.add_argument(
            "--stacks",
            action="store_true",
            help="keep whole Python stacks of operators in profiled steps, for gpuprof explain",
        )
        add_no_arguments(parser)
        on_demand.add_options(parser)
        # The gate's processes: nothing but the program may take their time.
        parser.add_argument("--no-ceilings", action="store_true", help=argparse.SUPPRESS)
        parser.add_argument(
            "--counters",
            action="store_true",
            help="run it again under Nsight Compute and count the kernels that could gain most",
        )
        parser.add_argument(
            "--nsys",
            action="store_true",
            help="run it under Nsight Systems, which records the device's work and its own report",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. The exit code is the program's."""
        refuse_half_a_range(arguments)
        if arguments.watch and arguments.stop_after:
            raise CommandError(
                "--watch is for the steps after the profiled ones, which --stop-after leaves out",
                exit_code=2,
            )
        if arguments.counters and arguments.nsys:
            raise CommandError(
                "--counters and --nsys are two runs: only one of Nsight Compute and "
                "Nsight Systems can hold a program's CUPTI",
                exit_code=2,
            )
        if arguments.no_arguments and arguments.nsys:
            raise CommandError(
                "--no-arguments cannot be kept with --nsys: the report of Nsight Systems, which "
                "stays in the capture, holds all arguments and environment variables",
                exit_code=2,
            )
        if arguments.watch and arguments.nsys:
            raise CommandError(
                "--watch is for the steps after the profiled ones, which Nsight Systems lengthens",
                exit_code=2,
            )
        on_demand.refuse_contradictions(arguments)
        if arguments.nsys:
            return _run_under_nsys(arguments)
        return _run_with_counters(arguments) if arguments.counters else _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    # Kineto would tell of each start and stop of a profiler on the script's stderr. It looks
    # at this when torch is imported; the levels of its messages end below 99.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from gpuprof.collectors.manifest import Schedule
    from gpuprof.profiler.run.ranks import Ranks
    from gpuprof.profiler.run.run_target import run_target
    from gpuprof.profiler.run.session_options import SessionOptions

    target = _target(arguments)
    output = _output(arguments, target)
    alone = Ranks.from_environment().alone
    plan = on_demand.plan_of(arguments)
    warmup = arguments.warmup
    if plan is not None and warmup is None:
        warmup = on_demand.WARMUP
    options = SessionOptions(
        schedule=Schedule.of(warmup, arguments.timed, arguments.profiled, alone=alone),
        steps=arguments.steps,
        step_range=arguments.step_range,
        stop_after=arguments.stop_after,
        watch=arguments.watch,
        first_look=arguments.profiled > 0,
        from_the_start=plan is None,
        memory_stacks=arguments.memory,
        stacks=arguments.stacks,
        pm_sampling=arguments.pm_sampling,
    )
    return run_target(
        target,
        options,
        output,
        quiet=arguments.quiet,
        ceilings=not arguments.no_ceilings,
        keep_arguments=not arguments.no_arguments,
        on_demand=plan,
    )


def _run_with_counters(arguments: argparse.Namespace) -> int:
    """Both runs are processes of their own; this one does not import torch."""
    from gpuprof.profiler.run.counters_pass import Runs, run_with_counters
    from gpuprof.profiler.run.ranks import Ranks

    if not Ranks.from_environment().alone:
        raise CommandError(
            "--counters works for one process: ncu replays the kernels of one rank alone, and NCCL "
            "would wait for the others for ever; leave it out under torchrun and srun",
            exit_code=2,
        )
    target = _target(arguments)
    output = _output(arguments, target)
    first = _in_its_own_process(arguments, target, output)
    program = (
        *_given(("--warmup", arguments.warmup)),
        *(*_steps(arguments), target.kind, target.value, *target.arguments),
    )
    runs = Runs(first, _python(), program)
    return run_with_counters(runs, output.shown, quiet=arguments.quiet, page=output.page)


def _run_under_nsys(arguments: argparse.Namespace) -> int:
    """The program is a process of its own, which nsys starts; this one does not import torch."""
    from gpuprof.profiler.run.nsys_pass import find_nsys, run_under_nsys
    from gpuprof.profiler.run.ranks import Ranks

    if not Ranks.from_environment().alone:
        raise CommandError(
            "--nsys works for one process; several ranks have one recording with `nsys profile "
            "torchrun ...`, which `gpuprof analyze` reads beside the capture",
            exit_code=2,
        )
    nsys = find_nsys()
    target = _target(arguments)
    output = _output(arguments, target)
    command = _in_its_own_process(arguments, target, output)
    return run_under_nsys(nsys, command, output.shown, quiet=arguments.quiet, page=output.page)


def _in_its_own_process(
    arguments: argparse.Namespace, target: "RunTarget", output: "CaptureOutput"
) -> tuple[str, ...]:
    """The command line of the same run, without what needs another process around it."""
    flags = (
        *("--force", "--stop-after", "--watch", "--memory", "--stacks", "--pm-sampling"),
        *("--no-ceilings", "--no-arguments"),
    )
    return (
        *(*_python(), "-m", "gpuprof", "run", "--quiet", "--output", str(output.requested)),
        *_steps(arguments),
        *_given(*((f"--{phase}", getattr(arguments, phase)) for phase in _PHASES)),
        *(flag for flag in flags if _is_set(arguments, flag)),
        *("--verbose",) * arguments.verbose,
        *{"script": (), "module": ("-m",), "command": ("-c",)}[target.kind],
        *(target.value, *target.arguments),
    )


def _python() -> tuple[str, ...]:
    from gpuprof.profiler.run.own_process import interpreter_flags

    return (sys.executable, *interpreter_flags())


def _steps(arguments: argparse.Namespace) -> tuple[str, ...]:
    return _given(("--steps", arguments.steps), ("--step-range", arguments.step_range))


def _target(arguments: argparse.Namespace) -> "RunTarget":
    from gpuprof.profiler.run.script import RunTarget

    kind = "module" if arguments.module else "command" if arguments.code else "script"
    return RunTarget(kind, arguments.target, tuple(arguments.arguments))


def _output(arguments: argparse.Namespace, target: "RunTarget") -> "CaptureOutput":
    """Where the capture goes. Raises `CommandError` where it may not."""
    from gpuprof.collectors.files.writing import refuse_unwritable
    from gpuprof.profiler.run.output import choose_output

    output = choose_output(
        arguments.output, target.stem, force=arguments.force, opens=arguments.open
    )
    if arguments.wait:
        # Captures have numbers, of which the free ones are taken.
        refuse_unwritable(output.requested)
    else:
        output.refuse_existing()
    return output


def _given(*options: tuple[str, object]) -> tuple[str, ...]:
    """Options that have a value, as a command line has them."""
    return tuple(
        part for name, value in options if value is not None for part in (name, str(value))
    )


def _is_set(arguments: argparse.Namespace, flag: str) -> bool:
    return bool(getattr(arguments, flag.removeprefix("--").replace("-", "_")))
