"""The formats that are read. A new one is a folder with its reader, and one row here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuprof.collectors import flight_recorder, kineto, memory_snapshot, nccl_log, ncu, nsys
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.source import ByteSource
from gpuprof.collectors.opening.other_files import OTHER_FILES


@dataclass(frozen=True)
class TraceFormat:
    """One kind of file that becomes a capture, plain or gzip."""

    # As errors name it, with its article.
    name: str
    # Ends of names, in lower case, that decide where the content does not.
    suffixes: tuple[str, ...]
    # Whether a file is of this format, by the first of its decompressed bytes (1 MB at most).
    recognises: Callable[[bytes], bool]
    # Raises `CaptureError` where the file is damaged.
    read: Callable[[Path], Capture]


# The first row that recognises a file reads it.
FORMATS: Final = (
    # Before those that take any JSON.
    TraceFormat(
        "a dump of PyTorch's flight recorder",
        (),
        flight_recorder.recognises,
        flight_recorder.read,
    ),
    TraceFormat("a log of NCCL", (), nccl_log.recognises, nccl_log.read),
    TraceFormat("a PyTorch profiler trace", (".json",), kineto.recognises, kineto.read),
    TraceFormat(
        "an Nsight Systems recording",
        (".sqlite", ".nsys-rep", ".qdrep"),
        nsys.recognises,
        nsys.read,
    ),
    TraceFormat(
        "Nsight Compute counters", (".ncu-rep", ".ncu-repz", ".csv"), ncu.recognises, ncu.read
    ),
    TraceFormat(
        "a CUDA memory snapshot of PyTorch",
        (".pickle", ".pkl"),
        memory_snapshot.recognises,
        memory_snapshot.read,
    ),
)
SUFFIXES: Final = tuple(suffix for one in FORMATS for suffix in one.suffixes)
EXPECTED: Final = ", ".join(
    (
        *(
            f"{one.name} ({', '.join(one.suffixes)})" if one.suffixes else one.name
            for one in sorted(FORMATS, key=lambda one: not one.suffixes)
        ),
        "each also as .gz, or a .gpuprof capture",
    )
)


def format_of(path: Path) -> TraceFormat:
    """The format of the file `path`: its content decides, its name only where that does not.

    Raises `CaptureError` where neither tells, and for files that are known to be no trace.
    """
    if not path.is_file():
        raise CaptureError(path, "not a regular file", expected=EXPECTED)
    start = next(iter(ByteSource(path)), b"")
    for other in OTHER_FILES:
        if other.recognises(start):
            raise CaptureError(path, other.name, remedy=other.remedy)
    by_content = next((one for one in FORMATS if one.recognises(start)), None)
    by_name = next((one for one in FORMATS if _plain_suffix(path) in one.suffixes), None)
    found = by_content or by_name
    if found is None:
        problem = "not a trace that is known here" if start else "an empty file"
        raise CaptureError(path, problem, expected=EXPECTED)
    return found


def _plain_suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix
