"""Prints the man page gpuprof(1), made from the parser of the command line.

python scripts/man_page.py > gpuprof.1
"""

import argparse
import sys
from collections.abc import Iterator

from gpuprof._version import __version__
from gpuprof.profiler.cli import make_parser

_SUMMARY = "profiling and roofline toolkit for PyTorch programs"
_FILES = """\
.SH FILES
.TP
.I gpuprof.toml
Settings: the nearest one from the working directory upwards, no further than the root of the
repository, else the one in
.IR ~/.config/gpuprof .
.TP
.I ~/.cache/gpuprof
What was measured of this machine's devices.
"""


def man_page() -> str:
    """The whole page in man(7)'s macros."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    parser = make_parser()
    yield f'.TH GPUPROF 1 "" "gpuprof {__version__}" "User Commands"'
    yield from (".SH NAME", f"gpuprof \\- {_SUMMARY}")
    yield from (".SH SYNOPSIS", ".B gpuprof", "COMMAND [options] [arguments]")
    yield from (".SH DESCRIPTION", _text(parser.description or ""))
    yield ".SH OPTIONS"
    yield from _arguments(parser)
    yield ".SH COMMANDS"
    for name, command in _commands(parser):
        yield from _command(name, command)
    yield _FILES.rstrip()


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f".SS gpuprof {_text(name)}"
    usage = argparse.HelpFormatter(parser.prog)
    usage.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, "")
    yield from (".nf", _text(usage.format_help().strip()), ".fi", ".PP")
    # Lists in it keep their lines.
    yield from (".nf", _text(parser.description or ""), ".fi")
    yield from _arguments(parser)
    for inner, command in _commands(parser):
        yield from _command(f"{name} {inner}", command)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog)
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
            continue
        yield ".TP"
        yield f"\\fB{_text(formatter._format_action_invocation(action))}\\fR"
        yield _text(formatter._expand_help(action) if action.help else "")


def _commands(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _text(text: str) -> str:
    """`text` as roff prints it: hyphens that can be copied, no line taken for a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.split("\n")
    )


if __name__ == "__main__":
    sys.stdout.write(man_page())
