"""What a terminal is given: text that cannot command it, in characters that its encoding has."""

import re
from typing import Final

from gpuprof.collectors.plain_text import printable

# Of a CI system that reads its jobs' output. GitHub takes a line that begins with ::error:: or
# another of these (actions/runner, src/Runner.Common/ActionCommand.cs and
# src/Runner.Worker/ActionCommandManager.cs), and ##[error] anywhere; Azure Pipelines ##vso[, and
# TeamCity ##teamcity[. Colours and blanks may stand before them.
_COMMANDS: Final = (
    *("add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group"),
    *("internal-set-repo-path", "notice", "remove-matcher", "save-state", "set-env", "set-output"),
    *("stop-commands", "warning"),
)
_LINE_COMMAND: Final = re.compile(
    rf"^((?:\s|\x1b\[[0-9;]*m)*:)(?=:(?:{'|'.join(_COMMANDS)})\b)", re.IGNORECASE | re.MULTILINE
)
_INLINE_COMMAND: Final = re.compile(r"##(?=\w*\[)")
_ASCII = str.maketrans(
    {
        "µ": "u",
        "→": "->",
        "±": "+-",
        "·": "-",
        "°": "",
        "█": "#",
        "─": "-",
        "\N{MULTIPLICATION SIGN}": "x",
        "≤": "<=",
        "≥": ">=",
        # Rich's mark of a shortened text, which takes one column.
        "…": "~",
        "\N{NO-BREAK SPACE}": " ",
        "\N{EN DASH}": "-",
    }
)


def shown(text: str, encoding: str) -> str:
    r"""`text` in what a terminal with `encoding` shows: nothing in it moves, colours or hides.

    Line ends stay. This is the one way of text to a terminal; what wraps it afterwards may begin a
    line with any part of it (`without_commands`).
    """
    return drawable("\n".join(map(printable, text.split("\n"))), encoding)


def without_commands(text: str) -> str:
    """`text`, laid out in lines, with no line that a CI system takes for a command to itself.

    A blank stands in the middle of what would begin one.
    """
    if "::" in text:
        text = _LINE_COMMAND.sub(r"\1 ", text)
    return _INLINE_COMMAND.sub("## ", text) if "##" in text else text


def is_drawable(text: str, encoding: str) -> bool:
    """Whether `encoding` has every character of `text`."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def drawable(text: str, encoding: str) -> str:
    """`text` without what `encoding` lacks: "12 µs" is "12 us" in ascii.

    A character that ascii has nothing like becomes a question mark, and so does half of a
    surrogate pair, which no encoding has.
    """
    if is_drawable(text, encoding):
        return text
    return "".join(
        letter
        if is_drawable(letter, encoding)
        else letter.translate(_ASCII).encode("ascii", "replace").decode("ascii")
        for letter in text
    )
