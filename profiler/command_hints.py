"""What a person meant whose first word is no command."""

import difflib
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from gpuprof.collectors.errors import CommandError

# What python is started with in place of a script.
_TARGET_OPTIONS = ("-m", "-c")


def with_help_as_an_option(arguments: Sequence[str]) -> list[str]:
    """`arguments`, with `help` and `help COMMAND` as the option that they mean."""
    if not arguments or arguments[0] != "help":
        return list(arguments)
    return [*arguments[1:2], "--help"]


def refuse_unknown_command(arguments: Sequence[str], known: Collection[str]) -> None:
    """Raise `CommandError` (exit 2) with what was probably meant, if it names no command."""
    if not arguments or arguments[0] in known:
        return
    word = arguments[0]
    if word.startswith("-") and word not in _TARGET_OPTIONS:
        return
    meant = _meant(arguments, known)
    hint = f"did you mean `{shlex.join(meant)}`?" if meant else "`gpuprof --help` lists them"
    raise CommandError(f"there is no command {word}; {hint}", exit_code=2)


def refuse_script_of_gate(arguments: Sequence[str]) -> None:
    """Raise `CommandError` (exit 2) where a script follows `gate`, which reads its targets."""
    if len(arguments) < 2 or arguments[0] != "gate" or not arguments[1].endswith(".py"):
        return
    raise CommandError(
        f"gate takes no script: write [[target]] and script = '{arguments[1]}' into gpuprof.toml, "
        "then `gpuprof gate --base REF`",
        exit_code=2,
    )


def _meant(arguments: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    word, *rest = arguments
    if word in _TARGET_OPTIONS:
        return ("gpuprof", "run", *arguments)
    path = Path(word)
    if path.name.startswith("python") and rest:
        return ("gpuprof", "run", *rest)
    if path.suffix == ".py":
        return ("gpuprof", "run", *arguments)
    if (path / "manifest.json").is_file():
        return ("gpuprof", "summary", word)
    if path.is_file():
        return ("gpuprof", "analyze", *arguments)
    near = difflib.get_close_matches(word, known, n=1)
    return ("gpuprof", *near, *rest) if near else ()
