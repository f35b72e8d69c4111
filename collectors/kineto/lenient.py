"""One trace event of any age or writer -> the struct of `events`, with its times in nanoseconds.

Reads what the typed decoder refuses: the categories and keys of 2020 and 2021 (Operator, Kernel,
"Input dims", "external id"), any spelling of upper and lower case, numbers as strings, missing and
null fields, and times with more digits than a float holds. Slower by about five times.
"""

import json
import re
import zlib
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
from msgspec import Raw

from gpuprof.collectors.kineto.events import (
    DURATION_LIMIT,
    IGNORED_CATEGORIES,
    INT64_MAX,
    INT64_MIN,
    PYTHON_CATEGORY,
    TIME_LIMIT,
    Annotation,
    AnnotationArgs,
    CallArgs,
    DeviceArgs,
    Dim3,
    DriverCall,
    Event,
    Kernel,
    Memcpy,
    Memory,
    MemoryArgs,
    Memset,
    Op,
    OpArgs,
    PythonFunction,
    RecordedSpan,
    RuntimeCall,
)
from gpuprof.collectors.kineto.findings import Findings

# Floats as their text: a float64 holds 15 to 17 digits, epoch microseconds with decimals have 19.
_DECODER: Final = msgspec.json.Decoder(float_hook=str)

# Lower-case category -> struct. The first of each line is today's name.
_KINDS: Final[dict[str, type[Event]]] = {
    **dict.fromkeys(("cpu_op", "operator"), Op),
    **dict.fromkeys(("cuda_runtime", "runtime", "hip_runtime", "xpu_runtime"), RuntimeCall),
    **dict.fromkeys(("cuda_driver", "driver", "xpu_driver"), DriverCall),
    "kernel": Kernel,
    **dict.fromkeys(("gpu_memcpy", "memcpy"), Memcpy),
    **dict.fromkeys(("gpu_memset", "memset"), Memset),
    "user_annotation": Annotation,
    "trace": RecordedSpan,
    "cpu_instant_event": Memory,
    PYTHON_CATEGORY: PythonFunction,
}
_IGNORED: Final = frozenset(category.lower() for category in IGNORED_CATEGORIES)
# Metadata, instants, counters and flows, where they have no category that is read.
_IGNORED_PHASES: Final = frozenset("MiICsft")
# Keys of args that only work on a device has.
_DEVICE_KEYS: Final = frozenset(("stream", "stream id", "grid", "block", "task type"))
# Of each kind of thing that is counted by its name. A trace of torch has a dozen.
_MOST_COUNTED: Final = 1000
_LAST_NUMBER: Final = re.compile(r"(\d+)\s*$")


def decode(text: bytes) -> object:
    """`text` as plain Python objects, floats as strings. Raises as `msgspec.json.decode`."""
    return _DECODER.decode(text)


def event(element: object, findings: Findings) -> Event | None:
    """The struct of one element of traceEvents, or None where it is not an event that is read."""
    if not isinstance(element, dict):
        findings.malformed += 1
        return None
    category = element.get("cat")
    phase = element.get("ph")
    kind = _KINDS.get(category.lower()) if isinstance(category, str) else None
    if kind is None:
        _count_unread(element, findings)
        return None
    if kind is RecordedSpan and (phase != "X" or element.get("dur") is None):
        # A mark of the profiler, of no length.
        return None
    name = element.get("name")
    start = nanoseconds(element.get("ts"), TIME_LIMIT)
    if not isinstance(name, str) or start is None:
        findings.malformed += 1
        return None
    raw_args = element.get("args")
    args = (
        {key.lower(): value for key, value in raw_args.items()}
        if isinstance(raw_args, dict)
        else {}
    )
    process, thread = identifier(element.get("pid")), identifier(element.get("tid"))
    if issubclass(kind, Memory):
        return kind("i", name, process, thread, start, _memory_args(args))
    duration = nanoseconds(element.get("dur"), DURATION_LIMIT)
    if phase != "X" or duration is None:
        findings.malformed += 1
        return None
    if issubclass(kind, Op):
        return kind("X", name, process, thread, start, duration, _op_args(args))
    if issubclass(kind, RuntimeCall):
        call_args = CallArgs(
            integer(args.get("correlation")),
            _string(args.get("kernel")),
            _dim3(args.get("grid")),
            _dim3(args.get("block")),
        )
        return kind("X", name, process, thread, start, duration, call_args)
    if issubclass(kind, Kernel):
        return kind("X", name, process, thread, start, duration, _device_args(args))
    if issubclass(kind, Annotation):
        tensors = AnnotationArgs(
            _text(args.get("input dims")), _text(args.get("input type", args.get("input types")))
        )
        return kind("X", name, process, thread, start, duration, tensors)
    return kind("X", name, process, thread, start, duration)


def nanoseconds(value: object, limit_us: int) -> int | None:
    """Microseconds as a number or decimal text -> nanoseconds, rounded to the nearest."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value * 1000 if abs(value) <= limit_us else None
    if not isinstance(value, str):
        return None
    try:
        decimal = Decimal(value)
    except InvalidOperation:
        return None
    # Comparing is exact, where arithmetic ends at exponents of a million.
    if not decimal.is_finite() or not -limit_us <= decimal <= limit_us:
        return None
    return round(decimal * 1000)


def integer(value: object) -> int | None:
    """An int64 as a number or text; None where it is neither or too large."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if INT64_MIN <= value <= INT64_MAX else None


def identifier(value: object) -> int:
    """A process or thread as a number: 7, "7", "stream 7" -> 7; another text -> its checksum < 0.

    None and other things become -1.
    """
    number = integer(value)
    if number is not None:
        return number
    if not isinstance(value, str) or not value:
        return -1
    last = _LAST_NUMBER.search(value)
    number = integer(last[1]) if last else None
    return number if number is not None else -2 - zlib.crc32(value.encode(errors="replace"))


def _count_unread(element: dict[str, Any], findings: Findings) -> None:
    category, phase, args = element.get("cat"), element.get("ph"), element.get("args")
    process = str(element.get("pid"))
    if isinstance(category, str) and category:
        if category.lower() not in _IGNORED:
            _count(findings.unread_categories, category)
            findings.device_rows |= _is_on_device(args)
    elif phase == "M" and element.get("name") == "process_name":
        if isinstance(args, dict):
            if len(findings.process_names) < _MOST_COUNTED:
                findings.process_names[process] = str(args.get("name"))
    elif phase == "X" and isinstance(element.get("name"), str) and "ts" in element:
        _count(findings.uncategorised, process)
        findings.device_rows |= _is_on_device(args)
    elif isinstance(phase, str) and phase and phase != "X":
        if phase not in _IGNORED_PHASES:
            _count(findings.unread_categories, f"phase {phase}")
    else:
        findings.malformed += 1


def _count(counter: Counter[str], name: str) -> None:
    if name in counter or len(counter) < _MOST_COUNTED:
        counter[name] += 1


def _is_on_device(args: object) -> bool:
    return isinstance(args, dict) and any(key.lower() in _DEVICE_KEYS for key in args)


def _op_args(args: dict[str, Any]) -> OpArgs:
    return OpArgs(
        external_id=integer(args.get("external id")),
        sequence=integer(args.get("sequence number")),
        forward_thread=integer(args.get("fwd thread id")),
        input_dims=_text(args.get("input dims")),
        input_types=_text(args.get("input type", args.get("input types"))),
        input_strides=_text(args.get("input strides")),
        concrete_inputs=_text(args.get("concrete inputs")),
        kernel_file=_string(args.get("kernel_file")),
        **_collective_args(args),
    )


def _device_args(args: dict[str, Any]) -> DeviceArgs:
    return DeviceArgs(
        device=integer(args.get("device")),
        context=integer(args.get("context")),
        stream=integer(args.get("stream")),
        correlation=integer(args.get("correlation")),
        grid=_dim3(args.get("grid")),
        block=_dim3(args.get("block")),
        registers=integer(args.get("registers per thread")),
        shared_memory=integer(args.get("shared memory")),
        bytes=integer(args.get("bytes")),
        graph_id=integer(args.get("graph id")),
        graph_node=integer(args.get("graph node id")),
        annotated_name=_string(args.get("name")),
        annotation=_string(args.get("annotation")),
        sequence=integer(args.get("seq")),
        **_collective_args(args),
    )


def _collective_args(args: dict[str, Any]) -> dict[str, Any]:
    return {
        "collective": _string(args.get("collective name")),
        "elements_in": integer(args.get("in msg nelems")),
        "elements_out": integer(args.get("out msg nelems")),
        "dtype": _string(args.get("dtype")),
        "group": _string(args.get("process group name")),
        "group_size": integer(args.get("group size")),
    }


def _memory_args(args: dict[str, Any]) -> MemoryArgs:
    return MemoryArgs(
        bytes=integer(args.get("bytes")),
        total=integer(args.get("total allocated")),
        reserved=integer(args.get("total reserved")),
        address=integer(args.get("addr")),
        device_type=integer(args.get("device type")),
        device=integer(args.get("device id")),
    )


def _dim3(value: object) -> Dim3 | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    x, y, z = map(integer, value)
    return None if x is None or y is None or z is None else (x, y, z)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _text(value: object) -> Raw:
    return Raw(b"") if value is None else Raw(json.dumps(value).encode())
