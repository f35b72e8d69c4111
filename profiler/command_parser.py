"""How the words of a command line become a command's arguments."""

import argparse
from typing import Any, NoReturn


class CommandParser(argparse.ArgumentParser):
    """The parser of one sub-command: options may stand anywhere among its names and files.

    What it does not know is told with its own usage, and not that of the whole command line.
    """

    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Nothing is left over: what is unknown ends the program with exit code 2."""
        # Its own second look, at what is no option, comes through here too.
        if self._within:
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            mixed = self._mixes and "--" not in (args or ())
            parse = self.parse_known_intermixed_args if mixed else super().parse_known_args
            namespace, unknown = parse(args, namespace)
        finally:
            self._within = False
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown

    def format_usage(self) -> str:
        """As of every parser; plainer, and at no cost, where it is wanted only for a case of error.

        Some versions of argparse ask for it before each mixed parse.
        """
        if not self._within:
            return super().format_usage()
        formatter = argparse.HelpFormatter(self.prog)
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """As of every parser."""
        self._within = False
        super().error(message)

    @property
    def _mixes(self) -> bool:
        """Whether no word ends the options, as a program to run and an action of the gate do."""
        ends = (argparse.PARSER, argparse.REMAINDER)
        return not any(action.nargs in ends for action in self._actions)
