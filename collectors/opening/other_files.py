"""Files that lie beside traces and are none: what each is, and what to do with it.

They are told by their first bytes alone. A pickle is never loaded, since that runs code in it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpuprof.collectors import flight_recorder, memory_snapshot


@dataclass(frozen=True)
class OtherFile:
    """One kind of file that is no trace."""

    # As errors name it, with its article.
    name: str
    # What the user can do instead.
    remedy: str
    # By the first of its decompressed bytes.
    recognises: Callable[[bytes], bool]


_RECORD_A_TRACE: Final = "pass a trace, as torch.profiler's export_chrome_trace writes it"
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257
_ZIP_MAGIC: Final = b"PK\x03\x04"
# torch.save's archive starts with this member.
_SAVED_TENSORS: Final = b"/data.pkl"
_NAMES_BEGIN: Final = 4096
# Protocols 2 to 5, which Python has written since 3.0; before those a dictionary as text.
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]|\(dp\d|\(d[pS]")
# Keys of a node (mlcommons/chakra; torch/csrc/profiler/standalone/execution_trace_observer.cpp).
_EXECUTION_NODE: Final = re.compile(rb'"(?:ctrl_deps|rf_id|op_schema|parent)"')
# Names of planes (openxla/tsl, profiler/utils/xplane_schema.cc), in a protobuf message.
_XPLANE: Final = re.compile(rb"/(?:host|device):|Task Environment")


def _is_pickle(start: bytes) -> bool:
    """Whether it is a pickle of another kind than those that are read."""
    read = memory_snapshot.recognises(start) or flight_recorder.recognises(start)
    return _PICKLE.match(start) is not None and not read


def _is_json_without_events(start: bytes) -> bool:
    return start.lstrip().startswith(b"{") and b'"traceEvents"' not in start


# The first row that recognises a file names it.
OTHER_FILES: Final = (
    OtherFile(
        "an archive",
        "unpack it and pass the files in it",
        lambda start: start.startswith(_TAR_MAGIC, _TAR_MAGIC_AT),
    ),
    OtherFile(
        "a file of torch.save, no trace",
        _RECORD_A_TRACE,
        lambda start: start.startswith(_ZIP_MAGIC) and _SAVED_TENSORS in start[:_NAMES_BEGIN],
    ),
    OtherFile(
        "an archive",
        "unpack it and pass the files in it",
        lambda start: start.startswith(_ZIP_MAGIC),
    ),
    OtherFile(
        "a pickle, no trace; it is not opened, since that would run code in it",
        _RECORD_A_TRACE,
        _is_pickle,
    ),
    OtherFile(
        "an execution trace (Chakra) without times, no profiler trace",
        "pass the profiler's trace of the same run",
        lambda start: (
            _is_json_without_events(start)
            and b'"nodes"' in start
            and _EXECUTION_NODE.search(start) is not None
        ),
    ),
    OtherFile(
        "a memory timeline of PyTorch's profiler, no trace",
        _RECORD_A_TRACE,
        lambda start: start.lstrip().startswith(b"[["),
    ),
    OtherFile(
        "an XPlane profile of XLA, no PyTorch trace",
        "view it with XProf",
        lambda start: start.startswith(b"\n") and _XPLANE.search(start) is not None,
    ),
    OtherFile(
        "an HTML page",
        "pass the trace that it was made from",
        lambda start: re.match(rb"\s*<(?:!doctype html|html)", start, re.IGNORECASE) is not None,
    ),
)
