"""The file beside a trace with what it leaves out of its operators' tensors.

A program that is profiled writes it, so nothing here needs what reads traces.
"""

from pathlib import Path

import msgspec


class RecordedList(msgspec.Struct, frozen=True, array_like=True):
    """The tensors of one list, with torch's names of their element types."""

    shapes: list[tuple[int, ...]]
    strides: list[tuple[int, ...]]
    dtypes: list[str]


class RecordedLists(msgspec.Struct, frozen=True):
    """For each operator, by its "External id", the list at each argument that is one."""

    by_external_id: dict[int, tuple[RecordedList | None, ...]]
    # Of products the number of the tensor that is multiplied: equal ones are the same, unchanged.
    multiplied: dict[int, int] = {}


def beside(trace: Path) -> Path:
    """Where the lists of `trace` are."""
    return trace.with_suffix(".lists.json")
