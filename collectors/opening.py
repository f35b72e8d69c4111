"""From paths that a user gives to one Capture: which reader a file needs, what belongs together.

A file's content decides, its name only where the content does not.
"""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from gpuprof.collectors import kineto, ncu, nsys, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError, GpuprofError, MissingDependencyError
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.kineto.source import TraceBytes
from gpuprof.collectors.ncu.report import MAGIC as NCU_MAGIC
from gpuprof.collectors.nsys.database import MAGIC as SQLITE_MAGIC

Reader = Callable[[Path], Capture]
FileProgress = Callable[[Path], None]

_EXPECTED: Final = (
    "a PyTorch profiler trace (.json, .json.gz), an Nsight Systems .sqlite or .nsys-rep, an Nsight "
    "Compute .ncu-rep or .csv, or a .gpuprof capture"
)
# First bytes of a .nsys-rep, as nsys 2025.3 writes it.
_NSYS_REPORT_MAGIC: Final = b"NVIDIA Tegra Profiler Report"
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257
# PowerShell redirects as UTF-16.
_UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What `ncu --csv` prints around its table and as its first line, after the program's own output.
_NCU_TEXT: Final = re.compile(
    r'^(?:==(?:PROF|WARNING|ERROR)== |"?ID"?,.*Kernel Name)', re.MULTILINE
)
_READERS_BY_SUFFIX: Final[dict[str, Reader]] = {
    ".json": kineto.read,
    ".sqlite": nsys.read,
    ".nsys-rep": nsys.read,
    ".qdrep": nsys.read,
    ".ncu-rep": ncu.read,
    ".csv": ncu.read,
}
# All that may stand at the end of a trace's name and says nothing about the run.
_ENDINGS: Final = (*_READERS_BY_SUFFIX, ".gz", ".tar", ".pt", ".trace", ".nsys", ".gpuprof")


def open_traces(
    paths: Sequence[Path], progress: Callable[[Path], None] = lambda _: None
) -> Capture:
    """The files, folders and captures `paths` of one run as one capture.

    `progress` is called with each file before it is read. Raises `CaptureError` where one cannot
    be read, and `ValueError` without paths.
    """
    return join([open_trace(path, progress) for path in paths])


def open_trace(path: Path, progress: FileProgress = lambda _: None) -> Capture:
    """The trace or capture `path`, or the traces of all ranks in the folder `path`.

    Files of a folder that cannot be read are named in the warnings. Raises `CaptureError` where
    nothing can be read, `MissingDependencyError` where a file needs an optional package.
    """
    if not path.exists():
        raise CaptureError(path, "no such file or folder")
    if storage.is_capture(path):
        progress(path)
        return storage.load(path)
    if path.is_dir():
        return _folder(path, progress)
    reader = _reader(path)
    progress(path)
    return reader(path)


def run_name(path: Path) -> str:
    """The name of the run behind `path`: without its folder and endings such as .pt.trace.json."""
    whole = path.absolute().name
    name = whole
    while ending := next((end for end in _ENDINGS if name.lower().endswith(end)), None):
        name = name[: -len(ending)]
    return name or whole or "root"


def _folder(path: Path, progress: FileProgress) -> Capture:
    """All traces in a folder, joined. Files that are none are left out."""
    captures: list[Capture] = []
    problems: list[GpuprofError] = []
    try:
        files = sorted(filter(_is_visible_file, path.iterdir()), key=_natural)
    except OSError as error:
        raise CaptureError(path, error.strerror or str(error)) from error
    for file in files:
        try:
            reader = _reader(file)
            progress(file)
            captures.append(reader(file))
        except (CaptureError, MissingDependencyError) as error:  # noqa: PERF203
            problems.append(error)
    if not captures:
        raise CaptureError(
            path,
            f"no trace in this folder could be read, as in: {problems[0]}"
            if problems
            else "no files in this folder",
            expected=f"traces, or a capture ({storage.MANIFEST_FILE}); subfolders are not searched",
        )
    joined = join(captures)
    left_out = tuple(f"left out: {problem}" for problem in problems)
    return replace(
        joined,
        manifest=msgspec.structs.replace(joined.manifest, title=run_name(path)),
        processes=tuple(
            msgspec.structs.replace(process, warnings=(*process.warnings, *left_out))
            for process in joined.processes
        ),
    )


def _is_visible_file(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sorts rank10 after rank9."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"([0-9]+)", path.name)
    ]


def _reader(path: Path) -> Reader:
    """The reader of one file. Raises `CaptureError` where neither content nor name tells."""
    if not path.is_file():
        raise CaptureError(path, "not a regular file", expected=_EXPECTED)
    start = next(_pieces(path), b"")
    if start.startswith((SQLITE_MAGIC, _NSYS_REPORT_MAGIC)):
        return nsys.read
    if start.startswith(NCU_MAGIC):
        return ncu.read
    if start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"["):
        return kineto.read
    if start.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
        raise CaptureError(path, "an archive", remedy="unpack it and pass the files in it")
    encoding = "utf-16" if start.startswith(_UTF16_MARKS) else "utf-8"
    if _NCU_TEXT.search(start.decode(encoding, "replace")):
        return ncu.read
    by_name = _READERS_BY_SUFFIX.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if by_name is None:
        problem = "not a trace that is known here" if start else "an empty file"
        raise CaptureError(path, problem, expected=_EXPECTED)
    return by_name


def _pieces(path: Path) -> Iterator[bytes]:
    """The file's bytes, decompressed where it is gzip."""
    return iter(TraceBytes(path))
