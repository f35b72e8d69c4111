"""The options of `gpuprof snap` for a program that gpuprof did not start."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.amounts import amount
from gpuprof.profiler.commands.on_demand import WARMUP
from gpuprof.profiler.commands.step_options import (
    PROFILED,
    add_no_arguments,
    add_step_options,
    refuse_half_a_range,
)
from gpuprof.profiler.page_output import PAGE_SUFFIX

if TYPE_CHECKING:
    from gpuprof.reports.json_answers.of_machines import AttachedProgram

_PATIENCE_S: Final = 10.0
# What they are where they are not given.
_ONLY_ATTACHED: Final = {
    **dict.fromkeys(("output", "steps", "step_range", "warmup", "timed", "timeout")),
    "profiled": PROFILED,
    **dict.fromkeys(("force", "no_arguments"), False),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    group = parser.add_argument_group("a program that gpuprof did not start")
    group.add_argument(
        "--attach",
        action="store_true",
        help="run gpuprof in process PID, by Python's remote execution, and store the capture here",
    )
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="CAPTURE",
        help="folder to write (gpuprof-TARGET-TIME.gpuprof here)",
    )
    group.add_argument("-f", "--force", action="store_true", help="replace an old capture")
    add_step_options(group, warmup=str(WARMUP))
    add_no_arguments(group)
    group.add_argument(
        "--timeout",
        type=amount,
        metavar="SECONDS",
        help=f"how long the program may take until it takes the request ({_PATIENCE_S:g})",
    )


def refuse_contradictions(arguments: argparse.Namespace) -> None:
    """Raise `CommandError` for options that do not go together."""
    if not arguments.attach:
        for name, absent in _ONLY_ATTACHED.items():
            if getattr(arguments, name) != absent:
                raise CommandError(f"--{name.replace('_', '-')} goes with --attach", exit_code=2)
    elif arguments.process is None:
        raise CommandError("--attach needs the PID of a process", exit_code=2)
    elif arguments.list:
        raise CommandError("--list asks none: leave --attach out", exit_code=2)
    elif arguments.output is not None and arguments.output.suffix.lower() == PAGE_SUFFIX:
        raise CommandError(
            f"--attach stores a capture: leave out -o {arguments.output}, and let gpuprof report "
            "write the page",
            exit_code=2,
        )
    refuse_half_a_range(arguments)


def attach(arguments: argparse.Namespace) -> "AttachedProgram":
    """Record steps of the process. Raises `CommandError` where that cannot be done."""
    from gpuprof.collectors.manifest import Schedule
    from gpuprof.collectors.masked_arguments import masked_arguments
    from gpuprof.collectors.plain_text import storable
    from gpuprof.profiler.run.attach.attaching import Attachment, refuse_own_python
    from gpuprof.profiler.run.attach.messages import RecordRequest
    from gpuprof.profiler.run.attach.process_facts import facts_of, own_python, refuse
    from gpuprof.profiler.run.output import choose_output
    from gpuprof.profiler.run.recorded import Subject
    from gpuprof.profiler.run.session_options import SessionOptions
    from gpuprof.reports.console.streams import write_note
    from gpuprof.reports.json_answers.of_machines import AttachedProgram

    facts = facts_of(arguments.process)
    target = facts.target
    output = choose_output(arguments.output, target.stem, force=arguments.force)
    output.refuse_existing()
    refuse_own_python()
    refuse(facts, own_python())
    kept = () if arguments.no_arguments else target.arguments
    subject = Subject(
        output=output,
        title=storable(f"{target.title} (gpuprof snap --attach)"),
        source="gpuprof snap --attach",
        command=masked_arguments(map(storable, (target.title, *kept))),
        ceilings=False,
    )
    options = SessionOptions(
        schedule=Schedule.of(
            WARMUP if arguments.warmup is None else arguments.warmup,
            arguments.timed,
            arguments.profiled,
        ),
        steps=arguments.steps,
        step_range=arguments.step_range,
        first_look=False,
    )
    attachment = Attachment(facts, arguments.timeout or _PATIENCE_S)
    stored = attachment.record(
        RecordRequest(subject, options), lambda sentence: write_note(f"gpuprof: {sentence}")
    )
    return AttachedProgram(process=facts.process, title=target.title, capture=str(stored.shown))
