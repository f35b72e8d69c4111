"""`gpuprof completion`."""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

SHELLS: Final = ("bash", "zsh", "fish")
# Arguments that are paths, or may be, and whose text is read by somebody else.
_PATHS: Final = ("target", "arguments", "paths", "claims")


class CompletionCommand:
    """Print the script that completes commands, options and files in a shell.

    It belongs into a file where the shell looks for it:

    bash  ~/.local/share/bash-completion/completions/gpuprof
    zsh   _gpuprof in a folder of $fpath
    fish  ~/.config/fish/completions/gpuprof.fish
    """

    name = "completion"
    summary = "print the completion of commands and options for a shell"

    def __init__(self, make_parser: Callable[[], argparse.ArgumentParser]) -> None:
        """`make_parser` makes the parser of the whole command line."""
        self._make_parser = make_parser

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument("shell", choices=SHELLS, help="the shell")

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`."""
        import shtab

        from gpuprof.reports.console.streams import write_bytes

        parser = self._make_parser()
        for action in _actions(parser):
            if action.choices is None and (action.type is Path or action.dest in _PATHS):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        write_bytes(f"{shtab.complete(parser, arguments.shell)}\n".encode())
        return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Of `parser` and of all commands in it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
