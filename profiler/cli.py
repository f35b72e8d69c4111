"""The `gpuprof` command: parses, runs one sub-command, and prints errors as one line."""

import argparse
import inspect
import logging
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from gpuprof._version import __version__
from gpuprof.collectors import plugins
from gpuprof.collectors.errors import TORCH, GpuprofError, MissingDependencyError, describe
from gpuprof.profiler.command_hints import (
    refuse_script_of_gate,
    refuse_unknown_command,
    with_help_as_an_option,
)
from gpuprof.profiler.command_parser import CommandParser
from gpuprof.profiler.commands.analyze import AnalyzeCommand
from gpuprof.profiler.commands.baseline import BaselineCommand
from gpuprof.profiler.commands.bench import BenchCommand
from gpuprof.profiler.commands.calibrate import CalibrateCommand
from gpuprof.profiler.commands.compare import CompareCommand
from gpuprof.profiler.commands.completion import CompletionCommand
from gpuprof.profiler.commands.doctor import DoctorCommand
from gpuprof.profiler.commands.explain import ExplainCommand
from gpuprof.profiler.commands.export import ExportCommand
from gpuprof.profiler.commands.gate import GateCommand
from gpuprof.profiler.commands.history import HistoryCommand
from gpuprof.profiler.commands.mcp import McpCommand
from gpuprof.profiler.commands.mfu import MfuCommand
from gpuprof.profiler.commands.plan import PlanCommand
from gpuprof.profiler.commands.report import ReportCommand
from gpuprof.profiler.commands.repro import ReproCommand
from gpuprof.profiler.commands.run import RunCommand
from gpuprof.profiler.commands.serve import ServeCommand
from gpuprof.profiler.commands.snap import SnapCommand
from gpuprof.profiler.commands.summary import SummaryCommand
from gpuprof.profiler.json_output import write_refusal
from gpuprof.profiler.log import write_log
from gpuprof.profiler.machine.other_owners import other_owners
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.reports.console import streams

_log = logging.getLogger(__name__)
_DESCRIPTION = "Measure how much of a machine's speed a PyTorch program uses and what limits it."


class Command(Protocol):
    """One sub-command. Its module imports nothing heavy before `run`."""

    name: str
    # One line for `gpuprof --help`; the class docstring is the text of `gpuprof NAME --help`.
    summary: str

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do the work and return the exit code. Raises `GpuprofError`."""


COMMANDS: tuple[Command, ...] = (
    RunCommand(),
    SnapCommand(),
    AnalyzeCommand(),
    SummaryCommand(),
    ReportCommand(),
    ExportCommand(),
    ServeCommand(),
    McpCommand(),
    ExplainCommand(),
    ReproCommand(),
    CompareCommand(),
    BenchCommand(),
    MfuCommand(),
    PlanCommand(),
    GateCommand(),
    BaselineCommand(),
    HistoryCommand(),
    CalibrateCommand(),
    DoctorCommand(),
    CompletionCommand(lambda: make_parser()),
)


def make_parser() -> argparse.ArgumentParser:
    """The whole command line as one argparse parser."""
    from rich_argparse import RawDescriptionRichHelpFormatter

    # Wide enough for the longest command to stand beside its line.
    formatter = partial(RawDescriptionRichHelpFormatter, max_help_position=30)
    parser = argparse.ArgumentParser(
        prog="gpuprof", description=_DESCRIPTION, formatter_class=formatter
    )
    parser.add_argument("-V", "--version", action="version", version=f"gpuprof {__version__}")
    commands = parser.add_subparsers(
        title="commands",
        metavar="COMMAND",
        required=True,
        parser_class=CommandParser,
        # Else argparse would format the help to find it.
        prog=parser.prog,
    )
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.name,
            help=command.summary,
            description=inspect.getdoc(command),
            formatter_class=formatter,
        )
        command.prepare_parser(subparser)
        _let_be_verbose(subparser, default=0)
        subparser.set_defaults(command=command)
    return parser


def _let_be_verbose(parser: argparse.ArgumentParser, default: int | str) -> None:
    """Give `parser` and the parsers of its actions the option `-v`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                # What was said before the action counts where it says nothing itself.
                _let_be_verbose(inner, default=argparse.SUPPRESS)
    parser.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=default,
        help="say on stderr what is done and how long it takes; -vv in detail",
    )


def _write_problem(sentence: str) -> None:
    """Say what is wrong with a plug-in, once in a job of many ranks."""
    if Ranks.from_environment().rank == 0:
        streams.write_note(f"gpuprof: {sentence}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` and return the exit code."""
    command: Command | None = None
    arguments = argparse.Namespace()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            for owner in other_owners(thorough=False):
                streams.write_note(f"gpuprof: {owner.finding}; {owner.remedy}")
            words = with_help_as_an_option(words)
            refuse_unknown_command(words, [command.name for command in COMMANDS])
            refuse_script_of_gate(words)
            arguments = make_parser().parse_args(words)
            from gpuprof.profiler.configuration.file import apply_configuration

            write_log(arguments.verbose)
            plugins.tell_problems_to(_write_problem)
            apply_configuration()
            command = arguments.command
            return int(arguments.command.run(arguments))
        finally:
            # Here, and not as python ends, where it could only complain. But the stdout of a
            # program that `run` ran is its own, and may be anything.
            if not isinstance(command, RunCommand):
                streams.flush()
    except GpuprofError as error:
        _log.debug("ended by", exc_info=True)
        streams.write_note(f"gpuprof: {describe(error, words)}")
        write_refusal(arguments, error)
        return error.exit_code
    except KeyboardInterrupt:
        # A program that `run` watches answers Ctrl-C itself.
        streams.write_note("gpuprof: interrupted")
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has enough of it.
        streams.discard(sys.stdout)
        return 1
    except OSError as error:
        # A full disk, a folder where a file should be, no permission.
        streams.write_note(f"gpuprof: {describe(error, words)}")
        write_refusal(arguments, error)
        return 1
    except ModuleNotFoundError as error:
        if error.name != "torch" or command is None:
            raise
        missing = MissingDependencyError("torch", f"run gpuprof {command.name}", TORCH)
        streams.write_note(f"gpuprof: {describe(missing)}")
        write_refusal(arguments, missing)
        return missing.exit_code
