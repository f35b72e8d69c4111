"""Whether a trace is of a program that used a device: only then its operators are not the work.

A trace without device events may be a run on a CPU, or one whose device events were not recorded,
not read, or lost. Operators of the second are launches only: their times say nothing of the work.
"""

import re
from collections.abc import Mapping
from typing import Final

import polars as pl

from gpuprof.collectors.kineto import events
from gpuprof.collectors.kineto.findings import Findings

# Categories of devices whose events are not read.
_ACCELERATOR: Final = re.compile("mtia_|privateuse1_|xpu_|hpu_|npu", re.IGNORECASE)
# Collectives of these run on devices alone; gloo and mpi run on either.
_DEVICE_BACKENDS: Final = ("nccl", "rccl", "hccl", "xccl", "cncl", "mccl")
# Operators that have no implementation on a CPU.
_DEVICE_OPERATORS: Final = (
    r"^(?:npu::|hpu::|xla::|nccl:|hccl:|xccl:|aten::_?(?:cudnn|miopen|mps)_|aten::_?lstm_mps)"
)


def found(tables: Mapping[str, pl.DataFrame], fields: Mapping[str, object], seen: Findings) -> bool:
    """True unless all that the trace holds speaks for a CPU.

    `tables` are the rows of one process, `fields` the trace's metadata.
    """
    return bool(
        tables["kernels"].height
        or tables["launches"]["name"].str.contains("(?i)launch").any()
        or any(map(_ACCELERATOR.search, seen.unread_categories))
        or seen.unread_device
        or seen.device_elsewhere
        or _backend(fields) in _DEVICE_BACKENDS
        or tables["ops"]["name"].str.contains(_DEVICE_OPERATORS).any()
        or (tables["allocations"]["device_type"] != events.CPU_DEVICE_TYPE).any()
        # Device events may have stood in the part that is missing.
        or (seen.incomplete and fields.get("deviceProperties") != [])
    )


def _backend(fields: Mapping[str, object]) -> object:
    info = fields.get("distributedInfo")
    backend = info.get("backend") if isinstance(info, dict) else None
    return backend.lower() if isinstance(backend, str) else None
