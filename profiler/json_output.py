"""The option --json of a command: where its answer goes, and what stands there without one."""

import argparse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuprof.collectors.errors import CommandError, GpuprofError
from gpuprof.reports.json_answers.schemas import JsonSchema

if TYPE_CHECKING:
    import msgspec

_STDOUT: Final = Path("-")
_SUFFIX: Final = ".json"
# Where the schema depends on what is asked.
_Chosen: TypeAlias = JsonSchema | Callable[[argparse.Namespace], JsonSchema]


def add_json(parser: argparse._ActionsContainer, schema: _Chosen) -> None:
    """Add --json, with which stdout has the answer as JSON and nothing else."""
    parser.add_argument(
        "--json", action="store_true", help="print the answer as JSON, and nothing else"
    )
    parser.set_defaults(schema=schema)


def add_json_or_file(parser: argparse._ActionsContainer, schema: _Chosen) -> None:
    """Add --json as `add_json` does, and --json FILE, which writes it beside what is printed."""
    parser.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=_STDOUT,
        metavar="FILE.json",
        help="print the answer as JSON, and nothing else; or write it to FILE.json too",
    )
    parser.set_defaults(schema=schema)


@dataclass(frozen=True)
class JsonOutput:
    """Where the answer of a command with `add_json_or_file` goes."""

    # None: nowhere.
    place: Path | None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "JsonOutput":
        """That of `arguments`. Raises `CommandError` for a file that is called otherwise."""
        place: Path | None = arguments.json
        # Else a word that is meant for the command would be written over.
        if place not in (None, _STDOUT) and place.suffix != _SUFFIX:
            raise CommandError(
                f"--json {place}: the name of its file ends in {_SUFFIX}; stdout is --json -",
                exit_code=2,
            )
        return cls(place)

    @property
    def alone(self) -> bool:
        """Whether stdout has the JSON and nothing else."""
        return self.place == _STDOUT

    @property
    def file(self) -> Path | None:
        """The file to write, if any."""
        return None if self.alone else self.place

    def refuse_existing(self, *, force: bool) -> None:
        """Raise `CommandError` where the file is in the way, before any work."""
        from gpuprof.collectors.files.writing import refuse_existing

        if self.file is not None:
            refuse_existing(self.file, force=force, option="--json")

    def write(self, schema: JsonSchema, answer: "msgspec.Struct") -> None:
        """Print or write `answer`, where that was asked for. Raises as `write_json`."""
        from gpuprof.collectors.files.writing import write_file
        from gpuprof.reports.json_answers.rendering import render_json

        if self.alone:
            write_json(schema, answer)
        elif self.file is not None:
            write_file(self.file, render_json(schema, answer))


def write_json(schema: JsonSchema, answer: "msgspec.Struct") -> None:
    """Print `answer` on stdout. Raises `BrokenPipeError`, and `CommandError` on a full disk."""
    from gpuprof.reports.console.streams import write_bytes
    from gpuprof.reports.json_answers.rendering import render_json

    write_bytes(render_json(schema, answer))


def write_refusal(arguments: argparse.Namespace, error: GpuprofError | OSError) -> None:
    """Where JSON was to be on stdout, print why there is no answer. Raises nothing.

    The error itself may be that nothing can be written there.
    """
    from gpuprof.reports.console.streams import write_bytes
    from gpuprof.reports.json_answers.rendering import render_refusal

    if getattr(arguments, "json", None) not in (True, _STDOUT):
        return
    chosen = arguments.schema
    schema = chosen if isinstance(chosen, JsonSchema) else chosen(arguments)
    with suppress(CommandError, BrokenPipeError):
        write_bytes(render_refusal(schema, error))
