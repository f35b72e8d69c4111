"""Makes valid JSON of what some profiler versions wrote instead.

Kineto has at times written names without escaping them and printed C++'s inf and nan (its newest
versions escape). Each function takes the text of some events and a counter, returns the repaired
text and counts what it changed.
"""

import re
from collections import Counter
from typing import Final

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_WHITE_CONTROL: Final = re.compile(rb"[\t\n\r]")
_ESCAPE: Final = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_NON_FINITE: Final = rb"[-+]?(?:nan|inf|infinity)(?=\s*[,}\]])"
_NON_FINITE_VALUE: Final = re.compile(rb'(":\s*)' + _NON_FINITE, re.IGNORECASE)
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|' + _NON_FINITE, re.IGNORECASE | re.DOTALL)
# A name ends where the next key of an event begins.
_NAME: Final = re.compile(
    rb'("name"\s*:\s*")(.*?)(?="\s*,\s*"(?:ph|cat|pid|tid|ts|dur|id|s|args)"\s*:)', re.DOTALL
)
_QUOTE: Final = re.compile(rb'(\\.)|"', re.DOTALL)
_REPLACEMENT: Final = "\ufffd".encode()


def quick(text: bytes, repaired: Counter[str]) -> bytes:
    """Repair what can be seen without telling strings from the rest."""

    def double(match: re.Match[bytes]) -> bytes:
        if match[1] is not None:
            return match[0]
        repaired["illegal escape"] += 1
        return b"\\\\"

    def null(match: re.Match[bytes]) -> bytes:
        repaired["non-finite number"] += 1
        return match[1] + b"null"

    text = _valid_utf8(text, repaired)
    # Before control characters become escapes themselves.
    text = _ESCAPE.sub(double, text)
    text = _escape_control(_CONTROL, text, repaired)
    return _NON_FINITE_VALUE.sub(null, text)


def thorough(text: bytes, repaired: Counter[str]) -> bytes:
    """Repair what only shows inside or outside a string: raw line ends, inf in an array."""

    def token(match: re.Match[bytes]) -> bytes:
        if match[0].startswith(b'"'):
            return _escape_control(_WHITE_CONTROL, match[0], repaired)
        repaired["non-finite number"] += 1
        return b"null"

    return _TOKEN.sub(token, text)


def name(text: bytes, repaired: Counter[str]) -> bytes:
    """Escape bare quotes inside the name of the one event in `text`."""

    def quote(match: re.Match[bytes]) -> bytes:
        if match[1] is not None:
            return match[0]
        repaired["unescaped quote"] += 1
        return b'\\"'

    return _NAME.sub(lambda match: match[1] + _QUOTE.sub(quote, match[2]), text, count=1)


def _escape_control(pattern: re.Pattern[bytes], text: bytes, repaired: Counter[str]) -> bytes:
    # A replacement of each kind, as a million objects for a million of one kind take memory.
    for character in sorted(set(pattern.findall(text))) if pattern.search(text) else ():
        repaired["raw control character"] += text.count(character)
        text = text.replace(character, b"\\u%04x" % character[0])
    return text


def _valid_utf8(text: bytes, repaired: Counter[str]) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError:
        valid = text.decode(errors="replace").encode()
        number = valid.count(_REPLACEMENT) - text.count(_REPLACEMENT)
        repaired["invalid UTF-8 sequence"] += number
        return valid
    return text
