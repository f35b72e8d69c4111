"""The formats that are read. A new one is a folder with its reader, and one row here.

Plug-ins add rows too, for files that none of ours recognises.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from gpuprof.collectors import flight_recorder, kineto, memory_snapshot, nccl_log, ncu, nsys
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError, GpuprofError, reason
from gpuprof.collectors.files.source import ByteSource
from gpuprof.collectors.opening.other_files import OTHER_FILES, OTHER_FOLDERS
from gpuprof.collectors.plugins import Plugin, PluginGroup, PluginUse, problem_with


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
READERS: Final = PluginGroup(
    name="gpuprof.readers",
    adds="reader",
    kinds=(TraceFormat,),
    claims=lambda one: (one.name, *one.suffixes),
    ours=lambda: [one.name for one in FORMATS],
)


def suffixes() -> tuple[str, ...]:
    """All ends of names that traces have."""
    return tuple(suffix for one in _all_formats() for suffix in one.suffixes)


def expected() -> str:
    """What is read, in words. Each may be packed as .gz, too."""
    return ", ".join(
        (
            *(
                f"{one.name} ({' '.join(one.suffixes)})" if one.suffixes else one.name
                for one in sorted(_all_formats(), key=lambda one: not one.suffixes)
            ),
            "or a .gpuprof capture",
        )
    )


def format_of(path: Path) -> TraceFormat:
    """The format of the file `path`: its content decides, its name only where that does not.

    Raises `CaptureError` where neither tells, and for files that are known to be no trace.
    """
    if not path.is_file():
        raise CaptureError(path, "not a regular file", expected=expected())
    start = next(iter(ByteSource(path)), b"")
    other = next((one for one in OTHER_FILES if one.recognises(start)), None)
    ours = None if other else next((one for one in FORMATS if one.recognises(start)), None)
    by_content = ours or _of_plugin(path, start)
    if by_content is None and other is not None:
        raise CaptureError(path, other.name, remedy=other.remedy)
    by_name = (one for one in _all_formats() if _plain_suffix(path) in one.suffixes)
    found = by_content or next(by_name, None)
    if found is None:
        problem = "no known trace" if start else "an empty file"
        raise CaptureError(path, problem, expected=expected())
    return found


def refuse_folder(path: Path) -> None:
    """Raise `CaptureError` where the folder `path` is known to be of a tool that is not read."""
    for other in OTHER_FOLDERS:
        if path.name.lower().endswith(other.suffix) and (
            not other.holds or any(path.glob(other.holds))
        ):
            raise CaptureError(path, other.name, remedy=other.remedy)


def _all_formats() -> Iterator[TraceFormat]:
    yield from FORMATS
    yield from map(_guarded, READERS.load())


def _of_plugin(path: Path, start: bytes) -> TraceFormat | None:
    """The first plug-in's that recognises `start`."""
    found = [one for one in READERS.load() if _recognises(one, start)]
    for other in found[1:]:
        problem_with(
            other.origin,
            f"it recognises {path.name} as {other.value.name}, which {found[0].origin.distribution}"
            f" reads as {found[0].value.name}",
        )
    return _guarded(found[0]) if found else None


def _recognises(plugin: Plugin[TraceFormat], start: bytes) -> bool:
    try:
        return bool(plugin.value.recognises(start))
    except Exception as error:
        problem_with(plugin.origin, f"recognises of {plugin.value.name} raised {_described(error)}")
        return False


def _guarded(plugin: Plugin[TraceFormat]) -> TraceFormat:
    """The format of a plug-in, whose reader raises nothing but what ours do."""
    return replace(plugin.value, read=partial(_read, plugin))


def _read(plugin: Plugin[TraceFormat], path: Path) -> Capture:
    """What a plug-in's reader makes of `path`, with a note that it did."""
    by = plugin.origin.distribution
    try:
        capture = plugin.value.read(path)
    except GpuprofError:
        raise
    except Exception as error:
        problem = f"the reader of {by} raised {_described(error)}"
        raise CaptureError(path, problem, remedy=f"tell the makers of {plugin.origin.name}") from (
            error
        )
    if not isinstance(capture, Capture):
        problem = f"the reader of {by} gave {type(capture).__name__}, expected a gpuprof.Capture"
        raise CaptureError(path, problem, remedy=f"tell the makers of {plugin.origin.name}")
    use = PluginUse(by, READERS.adds, plugin.value.name)
    return replace(
        capture,
        processes=tuple(
            msgspec.structs.replace(process, plugins=(*process.plugins, use))
            for process in capture.processes
        ),
    )


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {reason(error)}"


def _plain_suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix
