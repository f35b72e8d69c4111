"""Which configuration and which of its targets a command is about."""

import argparse
from fnmatch import fnmatchcase
from pathlib import Path

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.configuration.file import (
    CONFIGURATION_FILE,
    Configuration,
    find_configuration,
    read_configuration,
)
from gpuprof.profiler.configuration.targets import Target, distinct

NOTHING_TO_MEASURE = (
    f"there is nothing to measure: add a [[target]] to {CONFIGURATION_FILE}, "
    "with script = 'train.py'"
)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The options --config and --only."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"instead of the nearest {CONFIGURATION_FILE}",
    )
    parser.add_argument(
        "--only", metavar="PATTERN", help="targets whose name matches, such as 'train*'"
    )


def selection(arguments: argparse.Namespace) -> tuple[Configuration, str, tuple[Target, ...]]:
    """The configuration, where it stands for messages, and the targets chosen, at least one.

    Raises `CommandError` (exit 2).
    """
    configuration, place = configured(arguments.config)
    targets = select(configuration.target, arguments.only, place)
    if not targets:
        raise CommandError(NOTHING_TO_MEASURE, exit_code=2)
    return configuration, place, targets


def configured(file: Path | None) -> tuple[Configuration, str]:
    """What gpuprof.toml says, and where it stands for messages."""
    found = file or find_configuration()
    if found is None:
        return Configuration(), CONFIGURATION_FILE
    return read_configuration(found), str(found)


def select(targets: tuple[Target, ...], pattern: str | None, place: str) -> tuple[Target, ...]:
    """The targets that `pattern` matches. Raises `CommandError` (exit 2) where none does."""
    targets = distinct(targets, place)
    if pattern is None:
        return targets
    chosen = tuple(target for target in targets if fnmatchcase(target.name, pattern))
    if not chosen:
        names = ", ".join(target.name for target in targets) or "none"
        raise CommandError(f"--only {pattern!r} matches no target of {names}", exit_code=2)
    return chosen
