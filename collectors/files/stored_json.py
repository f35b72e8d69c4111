"""JSON files that gpuprof or its user wrote, read back as the types that were written."""

import re
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from gpuprof.collectors.files.memory_limit import MOST_BYTES, json_bytes
from gpuprof.collectors.files.source import whole_content

T = TypeVar("T")

# A gate of an hour writes 2 MB.
LARGEST_BYTES: Final = 48 << 20
# 19 digits or more where a number can stand: JSON has larger integers than tables and clocks have.
_LONG_NUMBER: Final = re.compile(rb"[\s:,\[-][0-9]{19}")
_INT64: Final = range(-(2**63), 2**63)


def stored_content(file: Path) -> bytes:
    """The bytes of `file`, plain or gzip. Raises `CaptureError` where they are too many."""
    return whole_content(
        file,
        LARGEST_BYTES,
        what="a file",
        remedy="it holds far less where gpuprof wrote it",
    )


def decode_stored(content: bytes, kind: type[T]) -> T:
    """`content` as a value of `kind`, whose integers are all inside int64.

    Raises `ValueError`, which says where it is something else.
    """
    if json_bytes(content) > MOST_BYTES:
        raise ValueError("it holds too many values")
    try:
        found = msgspec.json.decode(content, type=kind)
        if _LONG_NUMBER.search(content):
            _refuse_long_numbers(found)
    except RecursionError:
        raise ValueError("lists in lists without end") from None
    return found


def _refuse_long_numbers(value: Any) -> None:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _refuse_long_numbers(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():
            _refuse_long_numbers(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _refuse_long_numbers(inner)
    elif isinstance(value, int) and value not in _INT64:
        raise ValueError(f"the number {str(value)[:30]} is out of range")
