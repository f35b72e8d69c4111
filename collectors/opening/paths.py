"""Files, folders and captures of one run -> one Capture."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from gpuprof.collectors import nsys, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError, GpuprofError, MissingDependencyError, problem_of
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.joining.ranks import with_rank_of_name
from gpuprof.collectors.opening.formats import format_of, refuse_folder, suffixes
from gpuprof.collectors.opening.left_out import left_out_warnings
from gpuprof.collectors.plain_text import storable

_log = logging.getLogger(__name__)
# What may stand at the end of a trace's name, beside what formats end in, and says nothing about
# the run.
_ENDINGS: Final = (
    *(".gz", ".tar", ".pt", ".trace", ".nsys", ".gpuprof"),
    *(".parquetdir", "_pqtdir"),
)
# How deep captures of hosts may lie: a folder a host, and one a job in that.
_LEVELS: Final = 2
# Of the files in a folder without traces, the ones that an error names.
_NAMED_FILES: Final = 3


def open_traces(
    paths: Sequence[Path], progress: Callable[[Path], None] = lambda _: None
) -> Capture:
    """The files, folders and captures `paths` of one run as one capture.

    `progress` is called with each file before it is read. Raises `CaptureError` where one cannot
    be read, and `ValueError` without paths.
    """
    return join([open_trace(path, progress) for path in paths])


def open_trace(path: Path, progress: Callable[[Path], None] = lambda _: None) -> Capture:
    """The trace or capture `path`, or the traces of all ranks in the folder `path`.

    A folder of Parquet files that Nsight Systems exported is one trace.
    Files of a folder that cannot be read are named in the warnings. Raises `CaptureError` where
    nothing can be read, `MissingDependencyError` where a file needs an optional package.
    """
    if not path.exists():
        raise CaptureError(path, "no such file or folder")
    if storage.is_capture(path) or _is_damaged_capture(path):
        progress(path)
        return storage.load(path)
    if path.is_dir() and not nsys.is_parquet_folder(path):
        refuse_folder(path)
        return _folder(path, progress)
    return _file(path, progress)


def run_name(path: Path) -> str:
    """The name of the run behind `path`: without its folder and endings such as .pt.trace.json."""
    whole = path.absolute().name
    name, endings = whole, (*suffixes(), *_ENDINGS)
    while ending := next((end for end in endings if name.lower().endswith(end)), None):
        name = name[: -len(ending)]
    return name or whole or "root"


def _file(path: Path, progress: Callable[[Path], None]) -> Capture:
    """One trace. Its rank is what it says itself, else what its name says."""
    found = None if path.is_dir() else format_of(path)
    _log.info("%s: %s", path, "Parquet files of Nsight Systems" if found is None else found.name)
    read = nsys.read if found is None else found.read
    progress(path)
    capture = read(path)
    title = storable(capture.manifest.title)
    named = replace(capture, manifest=msgspec.structs.replace(capture.manifest, title=title))
    return with_rank_of_name(named, path.name)


def _is_damaged_capture(path: Path) -> bool:
    """Whether reading `path` as a capture says best what is wrong with it."""
    return (path / storage.MANIFEST_FILE).is_file() and any(path.glob("rank=*"))


def _folder(path: Path, progress: Callable[[Path], None]) -> Capture:
    """All traces in a folder, joined. Files that are none are left out.

    Without any, the captures in it and its sub-folders are those of one job's hosts.
    """
    captures: list[Capture] = []
    problems: list[str] = []
    for file in _visible(path, Path.is_file):
        try:
            captures.append(_file(file, progress))
        except (CaptureError, MissingDependencyError) as error:  # noqa: PERF203
            problems.append(storable(f"{file.name}: {_problem(error)}"))
    if not captures:
        captures = _of_hosts(path, progress, problems)
    if not captures:
        raise CaptureError(
            path,
            f"no trace in this folder could be read, as in: {_first(problems)}"
            if problems
            else "no files in this folder",
            expected=f"traces, a capture ({storage.MANIFEST_FILE}), or captures of one job; of "
            "subfolders only captures are read",
        )
    joined = join(captures)
    return replace(
        joined,
        manifest=msgspec.structs.replace(joined.manifest, title=storable(run_name(path))),
        processes=tuple(
            msgspec.structs.replace(
                process, warnings=(*process.warnings, *left_out_warnings(problems))
            )
            for process in joined.processes
        ),
    )


def _of_hosts(path: Path, progress: Callable[[Path], None], problems: list[str]) -> list[Capture]:
    """The captures in `path` and below, each of other ranks of one job; adds to `problems`.

    Raises `CaptureError` where two hold the same rank: they are of two jobs.
    """
    found: list[Capture] = []
    holders: dict[int, Path] = {}
    for folder in _captures_below(path, _LEVELS):
        progress(folder)
        try:
            capture = storage.load(folder)
        except CaptureError as error:
            problems.append(storable(f"{folder.relative_to(path)}: {_problem(error)}"))
            continue
        for rank in capture.manifest.ranks:
            other = holders.setdefault(rank, folder)
            if other != folder:
                raise CaptureError(
                    path,
                    f"{other.relative_to(path)} and {folder.relative_to(path)} both hold rank "
                    f"{rank}, so they are not of one job",
                    remedy="pass one capture, or those of one job",
                )
        found.append(capture)
    return found


def _captures_below(path: Path, levels: int) -> Iterator[Path]:
    """The captures in a folder and in `levels` of its sub-folders, in order."""
    for folder in _visible(path, Path.is_dir):
        if storage.is_capture(folder) or _is_damaged_capture(folder):
            yield folder
        elif levels:
            yield from _captures_below(folder, levels - 1)


def _problem(error: GpuprofError) -> str:
    """What is wrong with one file of a folder, in a clause."""
    if not isinstance(error, CaptureError):
        return str(error)
    where = f"{error.place}: " if error.place else ""
    return f"{where}{error.problem}"


def _first(problems: Sequence[str]) -> str:
    rest = len(problems) - _NAMED_FILES
    more = (f"{rest} more",) if rest > 0 else ()
    return "; ".join((*problems[:_NAMED_FILES], *more))


def _visible(path: Path, is_kind: Callable[[Path], bool]) -> list[Path]:
    """What is in the folder `path` and not hidden, in order. Raises `CaptureError`."""
    try:
        entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
        return sorted(filter(is_kind, entries), key=_natural)
    except OSError as error:
        raise CaptureError(path, problem_of(error)) from error


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sorts rank10 after rank9."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"([0-9]+)", path.name)
    ]
