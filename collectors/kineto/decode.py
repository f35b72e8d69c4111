"""The text of some trace events -> their structs, by the fastest way that reads it.

In order: the typed decoder; untyped JSON read leniently; the same two after repairs.
"""

from collections import Counter
from collections.abc import Sequence
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
    return _typed(text) or _untyped(text, findings)


def repaired(text: bytes, findings: Findings) -> Batch | None:
    """The events of `text` after repairs, or None where none makes a JSON array of it."""
    changes: Counter[str] = Counter()
    for mend in (repair.quick, repair.thorough):
        text = mend(text, changes)
        found = valid(text, findings)
        if found is not None:
            findings.repairs.update(changes)
            return found
    return None


def exactly(inexact: Batch, findings: Findings) -> Batch:
    """The same events with their times read as decimals.

    None of them where the text only decoded because the typed decoder does not look into what it
    skips, and no repair helps.
    """
    text = inexact.text
    changes: Counter[str] = Counter()
    for mend in (None, repair.quick, repair.thorough):
        if mend is not None:
            text = mend(text, changes)
        found = _untyped(text, findings)
        if found is not None:
            findings.repairs.update(changes)
            return found
    findings.unreadable += len(inexact.events)
    return Batch(text, [], exact=True)


def element(text: bytes, findings: Findings) -> tuple[bool, events.Event | None]:
    """Whether `text` is one JSON value, repaired if need be, and the event it is, if it is one."""
    changes: Counter[str] = Counter()
    for mend in (None, repair.quick, repair.thorough, repair.name):
        if mend is repair.name and len(text) > _LONGEST_TO_SEARCH:
            break
        if mend is not None:
            text = mend(text, changes)
        try:
            value = lenient.decode(text)
        except DECODE_ERRORS:
            continue
        findings.repairs.update(changes)
        return True, lenient.event(value, findings)
    return False, None


def document(text: bytes) -> dict[str, object] | None:
    """`text` as a JSON object, repaired if need be; None where it is none."""
    ignored: Counter[str] = Counter()
    for mend in (None, repair.quick, repair.thorough):
        if mend is not None:
            text = mend(text, ignored)
        try:
            value = lenient.decode(text)
        except DECODE_ERRORS:
            continue
        return value if isinstance(value, dict) else None
    return None


def _typed(text: bytes) -> Batch | None:
    try:
        return Batch(text, events.decode(text), exact=False)
    except DECODE_ERRORS:
        return None


def _untyped(text: bytes, findings: Findings) -> Batch | None:
    try:
        elements = lenient.decode(text)
    except DECODE_ERRORS:
        return None
    if not isinstance(elements, list):
        return None
    read = (lenient.event(item, findings) for item in elements)
    return Batch(text, [event for event in read if event is not None], exact=True)
