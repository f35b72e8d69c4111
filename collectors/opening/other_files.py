"""Files that lie beside traces and are none, and folders: what each is, and what to do with it.

They are told by their first bytes alone. A pickle is never loaded, since that runs code in it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpuprof.collectors import flight_recorder, memory_snapshot
from gpuprof.collectors.benchmark_results.formats import looks_like_a_result


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
# How XLA's profiler begins a Chrome trace, and what it calls processes in it (openxla/xla,
# xla/tsl/profiler/convert/trace_events_to_json.cc; xplane_schema.cc).
_XLA_HEAD: Final = re.compile(
    rb'\s*\{\s*"displayTimeUnit":\s*"ns",\s*"metadata":\s*\{"highres-ticks"'
)
_XLA_PROCESS: Final = re.compile(rb'"/(?:host|device):')
# Field 1 of GlobalMetadata, a version, and the first of a Node: its id, or its name where that is 0
# (mlcommons/chakra, schema/protobuf/et_def.proto). Each message follows its length.
_CHAKRA_METADATA: Final = re.compile(rb"\x0a[\x03-\x14](?:\d+\.)+\d+")
_CHAKRA_NODE: Final = (1 << 3 | 0, 2 << 3 | 2)
# Columns of kernel_details.csv and op_summary.csv.
_ASCEND_CSV: Final = re.compile(
    rb"[^\n]*(?:OP State,Accelerator Core|OP Type,OP State|OP Type,Core Type|Task Duration\(us\))"
)
# Names of planes (openxla/tsl, profiler/utils/xplane_schema.cc), in a protobuf message.
_XPLANE: Final = re.compile(rb"/(?:host|device):|Task Environment")
# Fields of a TracePacket and their wire types (google/perfetto, protos/perfetto/trace/
# trace_packet.proto): timestamp, trusted_uid, clock_snapshot, trusted_packet_sequence_id,
# track_event, interned_data, sequence_flags, trace_config, previous_packet_dropped,
# trace_packet_defaults, track_descriptor. Packets are field 1 of the file's message.
_PACKET_FIELDS: Final = {
    **dict.fromkeys((3, 8, 10, 13, 42), 0),
    **dict.fromkeys((6, 11, 12, 33, 59, 60), 2),
}
_PACKET: Final = 1 << 3 | 2
_FEWEST_PACKETS: Final = 2
_NSYS_STREAM: Final = b"NVIDIA Nsight Systems Stream"


def _is_pickle(start: bytes) -> bool:
    """Whether it is a pickle of another kind than those that are read."""
    read = memory_snapshot.recognises(start) or flight_recorder.recognises(start)
    return _PICKLE.match(start) is not None and not read


def _is_json_without_events(start: bytes) -> bool:
    return start.lstrip().startswith(b"{") and b'"traceEvents"' not in start


def _is_chakra(start: bytes) -> bool:
    """Whether it begins with Chakra's metadata, and a node where there is more."""
    length, at = _varint(start, 0)
    if not _CHAKRA_METADATA.match(start, at, at + max(length, 0)):
        return False
    behind = at + length
    _, at = _varint(start, behind)
    key, _ = _varint(start, at)
    return behind == len(start) or key in _CHAKRA_NODE


def _is_perfetto(start: bytes) -> bool:
    """Whether the first packets are of Perfetto: each begins with a field that one has.

    One packet alone has to be the whole file.
    """
    at, packets = 0, 0
    while at < len(start) and packets < _FEWEST_PACKETS:
        key, at = _varint(start, at)
        length, at = _varint(start, at)
        first, _ = _varint(start, at)
        if key != _PACKET or _PACKET_FIELDS.get(first >> 3) != first & 7:
            return False
        at += length
        packets += 1
    return packets == _FEWEST_PACKETS or (packets > 0 and at == len(start))


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number that protobuf wrote at `at`, and where the next thing begins; -1 for none.

    Of lengths those of 10 bytes are none: no file is so large.
    """
    number = 0
    for place, byte in enumerate(content[at : at + 9]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    return -1, len(content)


@dataclass(frozen=True)
class OtherFolder:
    """One kind of folder that is no set of traces."""

    # As errors name it, with its article.
    name: str
    remedy: str
    # The end of its name, in lower case, and what has to lie in it, as a pattern; "" for anything.
    suffix: str
    holds: str


OTHER_FOLDERS: Final = (
    OtherFolder(
        "a recording of Apple's Instruments (xctrace), which is not read",
        "view it with Instruments; torch's profiler records no work of MPS",
        ".trace",
        "*.run",
    ),
    OtherFolder(
        "a recording of Apple's Instruments (xctrace), which is not read",
        "view it with Instruments; torch's profiler records no work of MPS",
        ".trace",
        "form.template",
    ),
    OtherFolder(
        "a GPU trace of Apple's Metal debugger, which is not read",
        "view it with Xcode; torch's profiler records no work of MPS",
        ".gputrace",
        "",
    ),
    OtherFolder(
        "the output of torch_npu's profiler (Ascend NPU), which is not read",
        "view it with MindStudio Insight",
        "_ascend_pt",
        "",
    ),
)

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
        "an execution trace (Chakra; torch's ExecutionTraceObserver, param) without times, no "
        "profiler trace",
        "pass the profiler's trace of the same run",
        lambda start: (
            _is_json_without_events(start)
            and b'"nodes"' in start
            and _EXECUTION_NODE.search(start) is not None
        ),
    ),
    OtherFile(
        "a result of a benchmark (vLLM, SGLang, AIPerf, nvbench), no trace",
        "`gpuprof gate results` compares such results: several runs of two versions",
        lambda start: _is_json_without_events(start) and looks_like_a_result(start),
    ),
    OtherFile(
        "an execution trace of Chakra in protobuf, which holds no kernels of a device",
        "pass the profiler's trace that it was linked from",
        _is_chakra,
    ),
    OtherFile(
        "a Chrome trace of XLA's profiler (JAX, torch_xla, TensorFlow), no PyTorch trace",
        "view it with XProf; for a program with CUDA, pass a recording of Nsight Systems",
        lambda start: _XLA_HEAD.match(start) is not None and _XLA_PROCESS.search(start) is not None,
    ),
    OtherFile(
        "a table of Ascend's profiler (msprof, torch_npu), which is not read",
        "view its folder with MindStudio Insight",
        lambda start: _ASCEND_CSV.match(start) is not None,
    ),
    OtherFile(
        "a memory timeline of PyTorch's profiler, no trace",
        _RECORD_A_TRACE,
        lambda start: start.lstrip().startswith(b"[["),
    ),
    OtherFile(
        "an XPlane profile of XLA (JAX, torch_xla, TensorFlow), no PyTorch trace",
        "view it with XProf; for a program with CUDA, pass a recording of Nsight Systems",
        lambda start: start.startswith(b"\n") and _XPLANE.search(start) is not None,
    ),
    OtherFile(
        "a Perfetto trace in protobuf (torch's Cuspy, Perfetto, Chrome)",
        "view it on ui.perfetto.dev; pass a JSON trace, as torch.profiler's export_chrome_trace "
        "writes it to a name that ends in .json",
        _is_perfetto,
    ),
    OtherFile(
        "a stream of Nsight Systems that was not made a report yet",
        "nsys's QdstrmImporter makes one: QdstrmImporter --input-file REPORT.qdstrm",
        lambda start: _NSYS_STREAM in start[:_NAMES_BEGIN],
    ),
    OtherFile(
        "an HTML page",
        "pass the trace that it was made from",
        lambda start: re.match(rb"\s*<(?:!doctype html|html)", start, re.IGNORECASE) is not None,
    ),
)
