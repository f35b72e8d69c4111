"""How much memory a file may take that is held whole, with the objects that are made of it."""

import sys
from typing import Final

MOST_BYTES: Final = 400 << 20
# Of a dictionary, the larger of the two that open with a bracket, and of what begins at a comma or
# at a colon: a number or the head of a text, and its place in a list or dictionary that grows.
_BRACKET_BYTES: Final = sys.getsizeof({}) + 8
_VALUE_BYTES: Final = sys.getsizeof("") + 8
_PAIR_BYTES: Final = 120


def json_bytes(content: bytes) -> int:
    """The most bytes that the JSON in `content` and its objects take, before it is decoded.

    Brackets and commas in texts count as others.
    """
    # Of a text with one character beyond 65,535 each takes four bytes.
    is_narrow = content.isascii() and b"\\u" not in content
    return (
        (2 if is_narrow else 5) * len(content)
        + _BRACKET_BYTES * (content.count(b"[") + content.count(b"{"))
        + _VALUE_BYTES * content.count(b",")
        + _PAIR_BYTES * content.count(b":")
    )
