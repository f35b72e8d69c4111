"""Text of unknown origin as text that prints: on one line, without control characters."""

from typing import Final

# Between thousands, which str.isprintable takes for a control character.
THOUSANDS: Final = "\N{NO-BREAK SPACE}"
_CUT: Final = " … "


def printable(text: str) -> str:
    r"""`text` with each character that does not print (control, direction, surrogate) as \x1b.

    Names come from traces: unescaped they could colour, move or reverse what a terminal shows. The
    space that stands between thousands stays.
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter == THOUSANDS
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def storable(text: str) -> str:
    r"""`text` as tables and JSON can hold it: bytes of a name that are no UTF-8 are \udcff."""
    return text.encode("utf-8", "backslashreplace").decode()


def shortened(text: str, most: int) -> str:
    """`text` in at most so many characters: of a longer one the beginning and the end."""
    if len(text) <= most:
        return text
    begin = (most - len(_CUT)) // 2
    return f"{text[:begin]}{_CUT}{text[begin + len(_CUT) - most :]}"
