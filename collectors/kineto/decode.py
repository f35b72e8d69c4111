"""The text of some trace events -> their structs, by the fastest way that reads it.

In order: the typed decoder; untyped JSON read leniently; the same two after repairs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct

from gpuprof.collectors.kineto import events, lenient, repair
from gpuprof.collectors.kineto.findings import Findings

# What decoders raise on text that is no JSON, has another schema, nests too deep, or holds a
# number of thousands of digits.
DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)
# The search for a name takes time by the square of an event's length.
_LONGEST_TO_SEARCH: Final = 1 << 16
# Repairs take up to 50 times a text's memory; no event or metadata of today is so long.
_LONGEST_TO_REPAIR: Final = 4 << 20
# Of a trace's metadata, all values together; what goes beyond is not read. As Python's objects they
# take up to 30 times that.
_MOST_METADATA: Final = 8 << 20
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True)
class Batch:
    """Decoded events and the JSON array they came from.

    `exact`: their times are integer nanoseconds. Otherwise they are microseconds as the decoder
    read them, and where those turn out too large to be exact as floats, `exactly` reads `text`
    again.
    """

    text: bytes
    events: Sequence[Struct]
    exact: bool


def valid(text: bytes, findings: Findings) -> Batch | None:
    """The events of `text`, or None where it is not a JSON array."""
    return _typed(text) or untyped(text, findings)


def repaired(text: bytes, findings: Findings) -> Batch | None:
    """The events of `text` after repairs, or None where none makes a JSON array of it."""
    changes: Counter[str] = Counter()
    for mended in _mended(text, changes):
        found = valid(mended, findings)
        if found is not None:
            findings.repairs.update(changes)
            return found
    return None


def exactly(inexact: Batch, findings: Findings) -> Batch:
    """The same events with their times read as decimals.

    None of them where the text only decoded because the typed decoder does not look into what it
    skips, and no repair helps.
    """
    changes: Counter[str] = Counter()
    for text in (inexact.text, *_mended(inexact.text, changes)):
        found = untyped(text, findings)
        if found is not None:
            findings.repairs.update(changes)
            return found
    findings.unreadable += len(inexact.events)
    return Batch(inexact.text, [], exact=True)


def element(text: bytes, findings: Findings) -> tuple[bool, events.Event | None]:
    """Whether `text` is one JSON value, repaired if need be, and the event it is, if it is one."""
    try:
        value = lenient.decode(text)
    except DECODE_ERRORS:
        pass
    else:
        return True, lenient.event(value, findings)
    changes: Counter[str] = Counter()
    for mended in _mended(text, changes, named=len(text) <= _LONGEST_TO_SEARCH):
        try:
            value = lenient.decode(mended)
        except DECODE_ERRORS:
            continue
        findings.repairs.update(changes)
        return True, lenient.event(value, findings)
    return False, None


def document(text: bytes) -> dict[str, object] | None:
    """`text` as a JSON object, repaired if need be; None where it is none."""
    found = _document(text)
    if found is not None:
        return found
    return next(filter(None, map(_document, _mended(text, Counter()))), None)


def _document(text: bytes) -> dict[str, object] | None:
    found: dict[str, object] = {}
    left = _MOST_METADATA
    try:
        for key, value in _OBJECT.decode(text).items():
            size = len(memoryview(value))
            if size <= left:
                left -= size
                found[key] = lenient.decode(bytes(value))
    except DECODE_ERRORS:
        return None
    return found


def _mended(text: bytes, changes: Counter[str], *, named: bool = False) -> Iterator[bytes]:
    """`text` after each repair, which counts what it `changes`; nothing where it is too long."""
    if len(text) > _LONGEST_TO_REPAIR:
        return
    for mend in (repair.quick, repair.thorough, *((repair.name,) if named else ())):
        text = mend(text, changes)
        yield text


def _typed(text: bytes) -> Batch | None:
    try:
        return Batch(text, events.decode(text), exact=False)
    except DECODE_ERRORS:
        return None


def untyped(text: bytes, findings: Findings) -> Batch | None:
    """The events of `text`, of any age or writer; None where it is not a JSON array."""
    try:
        elements = lenient.decode(text)
    except DECODE_ERRORS:
        return None
    if not isinstance(elements, list):
        return None
    read = (lenient.event(item, findings) for item in elements)
    return Batch(text, [event for event in read if event is not None], exact=True)
