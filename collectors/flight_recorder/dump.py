"""What a dump of torch's flight recorder holds.

Source: pytorch torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp
(version 2.10 of the dump), before torch 2.7 NCCLUtils.hpp. Fields that older versions lack have
defaults. A dump in JSON says 0 for times that are unknown, and has no stacks.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

_RANKS: Final = re.compile(r"\d{1,9}")
_MOST_RANKS: Final = 1 << 20
_Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class DumpedEntry(msgspec.Struct, frozen=True):
    """One collective, send or receive."""

    # "nccl:all_reduce", "nccl:send 0->1", "nccl:recv 1<-0", with ranks within the group.
    profiling_name: str
    record_id: _Count = 0
    process_group: tuple[str, str] = ("", "")
    # Until version 1.4 of the dump; then one for collectives and one for sends.
    seq_id: _Count | None = None
    collective_seq_id: _Count | None = None
    p2p_seq_id: _Count = 0
    is_p2p: bool = False
    time_created_ns: _Nanoseconds = 0
    time_discovered_started_ns: _Nanoseconds | None = None
    time_discovered_completed_ns: _Nanoseconds | None = None
    duration_ms: float | None = None
    timeout_ms: _Count | None = None
    # Lists of lists of numbers, and lists of names. Not of those types: a pickle may hold one list
    # in a million places, and making it of a type copies it.
    input_sizes: Any = ()
    output_sizes: Any = ()
    input_dtypes: Any = ()
    output_dtypes: Any = ()
    state: str = ""
    retired: bool = False
    # Of dictionaries with name, filename and line, the innermost first.
    frames: Any = None

    @property
    def sequence(self) -> int | None:
        """The number of this collective in its group, or of this send in its pair."""
        if self.is_p2p:
            return self.p2p_seq_id
        return self.seq_id if self.collective_seq_id is None else self.collective_seq_id


class DumpedGroup(msgspec.Struct, frozen=True):
    """One process group; `ranks` is the text of a list, "[0, 1]"."""

    name: str = ""
    desc: str = ""
    ranks: str = ""

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks, none where it does not say."""
        return tuple(int(digits) for digits in _RANKS.findall(self.ranks)[:_MOST_RANKS])


class Dump(msgspec.Struct, frozen=True):
    """One dump: of one process."""

    version: str
    # Absent where the program asked for the state of its groups alone. Made of their type one by
    # one, since all of them take much memory.
    entries: list[Any] = []
    pg_config: dict[str, DumpedGroup] = {}
    nccl_version: str = ""
    comm_lib_version: str = ""


def dump_of(data: Any) -> Dump:
    """`data` as a dump. Raises `msgspec.ValidationError` where it has another form."""
    return msgspec.convert(data, Dump)


def entries_of(dump: Dump) -> Iterator[DumpedEntry]:
    """Its entries. Raises `msgspec.ValidationError` at one that has another form."""
    return (msgspec.convert(entry, DumpedEntry) for entry in dump.entries)
