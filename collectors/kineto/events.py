"""The trace events that gpuprof reads, as typed structs, and the decoder of a block of them.

The decoder takes the schema that Kineto has written since 2022, exactly: categories and keys as
they are spelled there, numbers as numbers. Whatever differs raises, and `lenient` reads the block
instead. An event's category selects its struct, so the events that gpuprof does not use (flows)
are skipped over without making an object of each field.

Source: pytorch/kineto, libkineto/src/output_json.cpp; older spellings are listed in `lenient`.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct, field

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
# Microseconds. Together with a base time of 4e18 ns these keep every sum inside int64; they reach
# the year 2096 and 31 years.
TIME_LIMIT: Final = 4_000_000_000_000_000
DURATION_LIMIT: Final = 1_000_000_000_000_000

Integer: TypeAlias = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Microseconds: TypeAlias = (
    Annotated[int, Meta(ge=-TIME_LIMIT, le=TIME_LIMIT)]
    | Annotated[float, Meta(ge=-TIME_LIMIT, le=TIME_LIMIT)]
)
Duration: TypeAlias = (
    Annotated[int, Meta(ge=-DURATION_LIMIT, le=DURATION_LIMIT)]
    | Annotated[float, Meta(ge=-DURATION_LIMIT, le=DURATION_LIMIT)]
)
Dim3: TypeAlias = tuple[Integer, Integer, Integer]

# c10::DeviceType::CPU, in allocator events.
CPU_DEVICE_TYPE: Final = 0

_ABSENT: Final = Raw(b"")


class CollectiveArgs(Struct, gc=False):
    """What `args` tell of a collective, on its kernel and on its operator. Elements are counts."""

    collective: str | None = field(default=None, name="Collective name")
    elements_in: Integer | None = field(default=None, name="In msg nelems")
    elements_out: Integer | None = field(default=None, name="Out msg nelems")
    dtype: str | None = None
    group: str | None = field(default=None, name="Process Group Name")
    group_size: Integer | None = field(default=None, name="Group size")


class AnnotationArgs(Struct, gc=False):
    """`args` of an annotation that names tensors, as a collective's; the lists stay JSON text."""

    input_dims: Raw = field(default=_ABSENT, name="Input Dims")
    input_types: Raw = field(default=_ABSENT, name="Input type")


class OpArgs(CollectiveArgs, gc=False):
    """`args` of a cpu_op; the lists stay JSON text."""

    external_id: Integer | None = field(default=None, name="External id")
    sequence: Integer | None = field(default=None, name="Sequence number")
    forward_thread: Integer | None = field(default=None, name="Fwd thread id")
    input_dims: Raw = field(default=_ABSENT, name="Input Dims")
    input_types: Raw = field(default=_ABSENT, name="Input type")
    input_strides: Raw = field(default=_ABSENT, name="Input Strides")
    concrete_inputs: Raw = field(default=_ABSENT, name="Concrete Inputs")
    # The source of a kernel that inductor generated.
    kernel_file: str | None = None


class CallArgs(Struct, gc=False):
    """`args` of a runtime or driver call."""

    correlation: Integer | None = None
    # What it launches, which ROCm's traces say here too.
    kernel: str | None = None
    grid: Dim3 | None = None
    block: Dim3 | None = None


class DeviceArgs(CollectiveArgs, gc=False):
    """`args` of a kernel, memcpy or memset. Bytes are counts."""

    device: Integer | None = None
    context: Integer | None = None
    stream: Integer | None = None
    correlation: Integer | None = None
    grid: Dim3 | None = None
    block: Dim3 | None = None
    registers: Integer | None = field(default=None, name="registers per thread")
    shared_memory: Integer | None = field(default=None, name="shared memory")
    bytes: Integer | None = None
    graph_id: Integer | None = field(default=None, name="graph id")
    graph_node: Integer | None = field(default=None, name="graph node id")
    # What torch.cuda's graph annotations say of the node, where they were merged into the trace.
    annotated_name: str | None = field(default=None, name="name")
    annotation: str | None = None
    # Of a collective, among those of its group.
    sequence: Integer | None = field(default=None, name="Seq")


class MemoryArgs(Struct, gc=False):
    """`args` of a [memory] instant event."""

    bytes: Integer | None = field(default=None, name="Bytes")
    total: Integer | None = field(default=None, name="Total Allocated")
    reserved: Integer | None = field(default=None, name="Total Reserved")
    address: Integer | None = field(default=None, name="Addr")
    device_type: Integer | None = field(default=None, name="Device Type")
    device: Integer | None = field(default=None, name="Device Id")


class _Complete(Struct, gc=False, tag_field="cat"):
    ph: Literal["X"]
    name: str
    pid: Integer | str
    tid: Integer | str
    ts: Microseconds
    dur: Duration


class Op(_Complete, gc=False, tag="cpu_op"):
    """An operator call on a CPU thread."""

    args: OpArgs | None = None


class RuntimeCall(_Complete, gc=False, tag="cuda_runtime"):
    """A runtime call; on ROCm its name starts with hip."""

    args: CallArgs | None = None


class DriverCall(RuntimeCall, gc=False, tag="cuda_driver"):
    """A driver call, as Triton makes."""


class Kernel(_Complete, gc=False, tag="kernel"):
    """A kernel on a device."""

    args: DeviceArgs | None = None


class Memcpy(Kernel, gc=False, tag="gpu_memcpy"):
    """A copy to, from or on a device."""


class Memset(Kernel, gc=False, tag="gpu_memset"):
    """A fill of device memory."""


class Annotation(_Complete, gc=False, tag="user_annotation"):
    """A record_function range, ProfilerStep included."""

    args: AnnotationArgs | None = None


class RecordedSpan(_Complete, gc=False, tag="Trace"):
    """All that a profiler recorded, from its start to its stop."""


class Memory(Struct, gc=False, tag_field="cat", tag="cpu_instant_event"):
    """An allocation (positive bytes) or a free."""

    ph: Literal["i"]
    name: str
    pid: Integer | str
    tid: Integer | str
    ts: Microseconds
    args: MemoryArgs | None = None


class PythonFunction(_Complete, gc=False, tag="python_function"):
    """A frame of the Python stack."""


# Written by Kineto and used for nothing here: flows, frames and rows on which no work runs.
# gpu_user_annotation, cuda_sync and cuda_event lie on device rows but are not device work. gpuprof
# is what `gpuprof analyze --to-chrome` shows beside what was recorded.
IGNORED_CATEGORIES: Final = (
    "ac2g",
    "async_cpu_to_gpu",
    "async",
    "fwdbwd",
    "gpu_user_annotation",
    "cuda_sync",
    "cuda_event",
    "cuda_profiler_range",
    "hardware_counters",
    "overhead",
    "gpuprof",
)
PYTHON_CATEGORY: Final = "python_function"


def _ignored(category: str) -> type[Struct]:
    return msgspec.defstruct(
        f"Ignored_{category}", [], tag_field="cat", tag=category, gc=False, namespace={}
    )


Event: TypeAlias = Op | RuntimeCall | Kernel | Annotation | RecordedSpan | Memory | PythonFunction
READ_TYPES: Final[tuple[type[Event], ...]] = (
    Op,
    RuntimeCall,
    DriverCall,
    Kernel,
    Memcpy,
    Memset,
    Annotation,
    RecordedSpan,
    Memory,
)


def _decoder(types: tuple[type[Struct], ...]) -> "msgspec.json.Decoder[list[Struct]]":
    # A union of types made at run time has no static type.
    union: object = types[0]
    for kind in types[1:]:
        union = union | kind
    return msgspec.json.Decoder(list[union])  # type: ignore[valid-type]


_FRAMELESS: Final = _decoder(
    (*READ_TYPES, *map(_ignored, IGNORED_CATEGORIES), _ignored(PYTHON_CATEGORY))
)
_WITH_FRAMES: Final = _decoder((*READ_TYPES, *map(_ignored, IGNORED_CATEGORIES), PythonFunction))
_FRAMES: Final = b'"python_function"'


def decode(block: bytes) -> list[Struct]:
    """The events of `block`, the text of one JSON array; unused ones as empty structs.

    Raises `msgspec.MsgspecError` where the text is no JSON or any event has another schema.
    """
    return (_WITH_FRAMES if _FRAMES in block else _FRAMELESS).decode(block)
