"""Characters that a terminal's encoding lacks, drawn with those of ascii."""

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
