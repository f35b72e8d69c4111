"""The file beside a trace with the collectives that torch's flight recorder saw.

A program that is profiled writes it, so nothing here needs what reads traces.
"""

from pathlib import Path

import msgspec


class RecordedCollective(msgspec.Struct, frozen=True, array_like=True):
    """One collective as the program put it into its group's queue."""

    created_ns: int
    # As the profiler calls its work, such as gloo:all_reduce.
    name: str
    group: str
    # Counts the collectives of the group, or what one pair of it sends.
    sequence: int


class RecordedCollectives(msgspec.Struct, frozen=True):
    """In the order in which they were recorded, by Unix time."""

    collectives: tuple[RecordedCollective, ...] = ()


def collectives_beside(trace: Path) -> Path:
    """Where the collectives of `trace` are."""
    return trace.with_suffix(".collectives.json")


def read_collectives(trace: Path) -> tuple[RecordedCollective, ...]:
    """The collectives beside `trace`; none where nothing was recorded."""
    path = collectives_beside(trace)
    if not path.is_file():
        return ()
    return msgspec.json.decode(path.read_bytes(), type=RecordedCollectives).collectives
