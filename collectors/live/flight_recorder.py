"""Group and sequence number of each collective on the host, from torch's flight recorder.

The recorder keeps the last few thousand collectives of each process, and costs nothing more to
read than that (pytorch torch/csrc/distributed/c10d/FlightRecorder.hpp; TORCH_FR_BUFFER_SIZE). Only
gloo's are taken from it: a trace has those of NCCL in its operator record_param_comms. Versions of
torch before 2.8 record none of gloo.
"""

import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuprof.collectors.recorded_collectives import (
    RecordedCollective,
    RecordedCollectives,
    collectives_beside,
)

_HOST_BACKEND: Final = "gloo:"


class _Entry(msgspec.Struct, frozen=True):
    profiling_name: str = ""
    process_group: tuple[str, str] = ("", "")
    time_created_ns: int = 0
    is_p2p: bool = False
    collective_seq_id: int = 0
    p2p_seq_id: int = 0


class _Dump(msgspec.Struct, frozen=True):
    entries: tuple[_Entry, ...] = ()


def write_collectives(trace: Path) -> None:
    """Write what this process has recorded beside `trace`, if it recorded anything."""
    # A program that uses no torch.distributed has not imported it, and some builds have none.
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    dump = getattr(c10d, "_dump_fr_trace_json", None)
    if dump is None:
        return
    entries = msgspec.json.decode(dump(), type=_Dump).entries
    found = tuple(
        RecordedCollective(
            created_ns=entry.time_created_ns,
            name=entry.profiling_name,
            group=entry.process_group[0],
            sequence=entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id,
        )
        for entry in entries
        if entry.profiling_name.startswith(_HOST_BACKEND)
    )
    if found:
        collectives_beside(trace).write_bytes(msgspec.json.encode(RecordedCollectives(found)))
