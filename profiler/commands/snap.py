"""`gpuprof snap`."""

import argparse
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.commands import attaching
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import SNAP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuprof.profiler.run.on_demand.waiting_processes import WaitingProcess
    from gpuprof.reports.json_answers.of_machines import WaitingProgram


class SnapCommand:
    """Ask a program that waits to profile its next steps.

    It runs under gpuprof run --wait, on this host and for this user. It is sent a
    signal, and says on its own stderr where the capture goes. Without PID the one
    program that waits is asked; of several, one has to be named. With --attach it
    is any program on Python 3.14 or later: gpuprof runs code in it, until the
    capture is stored or Ctrl-C ends this command.
    """

    name = "snap"
    summary = "have a program that waits (run --wait) profile its next steps"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument("process", nargs="?", type=int, metavar="PID", help="which program")
        parser.add_argument(
            "--list", action="store_true", help="ask none; list those of this user that wait"
        )
        attaching.add_options(parser)
        add_json(parser, SNAP)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` where no such program waits, or can be reached."""
        from gpuprof.profiler.run.on_demand.waiting_processes import ask, waiting_processes
        from gpuprof.reports.console.streams import write_line
        from gpuprof.reports.json_answers.of_machines import Snap

        if arguments.list and arguments.process is not None:
            raise CommandError("--list asks none: leave PID out", exit_code=2)
        attaching.refuse_contradictions(arguments)
        waiting = waiting_processes()
        asked = attached = None
        if arguments.attach:
            _refuse_waiting(waiting, arguments.process)
            attached = attaching.attach(arguments)
        elif not arguments.list:
            asked = _chosen(waiting, arguments.process)
            ask(asked)
        if arguments.json:
            told = None if asked is None else _as_answer(asked)
            others = tuple(map(_as_answer, waiting))
            write_json(SNAP, Snap(asked=told, waiting=others, attached=attached))
        elif attached is not None:
            capture = attached.capture
            write_line(f"{capture} is stored; gpuprof summary {capture} shows it")
        elif asked is not None:
            write_line(
                f"asked {asked.process} ({asked.title}); it says on its stderr where the capture "
                "goes"
            )
        else:
            _list(waiting)
        return 0


def _chosen(waiting: "Sequence[WaitingProcess]", process: int | None) -> "WaitingProcess":
    if not waiting:
        which = "no program" if process is None else f"process {process} does not wait, and none"
        raise CommandError(f"{which} of yours waits here; gpuprof run --wait script.py starts one")
    if process is None:
        if len(waiting) > 1:
            names = ", ".join(f"{one.process} ({one.title})" for one in waiting)
            raise CommandError(f"several programs wait: {names}; gpuprof snap PID asks one")
        return waiting[0]
    for one in waiting:
        if one.process == process:
            return one
    raise CommandError(
        f"process {process} does not wait, so nothing was sent to it; gpuprof snap --list shows "
        "those that do, and --attach reaches one that does not"
    )


def _refuse_waiting(waiting: "Sequence[WaitingProcess]", process: int) -> None:
    if any(one.process == process for one in waiting):
        raise CommandError(f"process {process} waits for gpuprof snap: leave --attach out")


def _list(waiting: "Sequence[WaitingProcess]") -> None:
    from gpuprof.collectors.live.unix_clock import unix_ns
    from gpuprof.reports.console.streams import write_line, write_note
    from gpuprof.reports.formatting import rough_time

    if not waiting:
        write_note("gpuprof: no program of yours waits here")
    for one in waiting:
        since = rough_time((unix_ns() - one.since_ns) / 1e9)
        write_line(f"{one.process:8}  {one.title}, for {since}, beside {one.output}")


def _as_answer(waiting: "WaitingProcess") -> "WaitingProgram":
    from gpuprof.profiler.run.on_demand.request_signals import signal_name
    from gpuprof.reports.json_answers.of_machines import WaitingProgram

    return WaitingProgram(
        process=waiting.process,
        title=waiting.title,
        output=waiting.output,
        signal=signal_name(waiting.signal),
        since_ns=waiting.since_ns,
    )
