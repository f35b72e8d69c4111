"""Files, folders and captures of one run -> one Capture."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError, GpuprofError, MissingDependencyError, problem_of
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.joining.ranks import with_rank_of_name
from gpuprof.collectors.opening.formats import SUFFIXES, format_of

# All that may stand at the end of a trace's name and says nothing about the run.
_ENDINGS: Final = (*SUFFIXES, ".gz", ".tar", ".pt", ".trace", ".nsys", ".gpuprof")
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

    Files of a folder that cannot be read are named in the warnings. Raises `CaptureError` where
    nothing can be read, `MissingDependencyError` where a file needs an optional package.
    """
    if not path.exists():
        raise CaptureError(path, "no such file or folder")
    if storage.is_capture(path) or _is_damaged_capture(path):
        progress(path)
        return storage.load(path)
    if path.is_dir():
        return _folder(path, progress)
    return _file(path, progress)


def run_name(path: Path) -> str:
    """The name of the run behind `path`: without its folder and endings such as .pt.trace.json."""
    whole = path.absolute().name
    name = whole
    while ending := next((end for end in _ENDINGS if name.lower().endswith(end)), None):
        name = name[: -len(ending)]
    return name or whole or "root"


def _file(path: Path, progress: Callable[[Path], None]) -> Capture:
    """One trace. Its rank is what it says itself, else what its name says."""
    read = format_of(path).read
    progress(path)
    return with_rank_of_name(read(path), path.name)


def _is_damaged_capture(path: Path) -> bool:
    """Whether reading `path` as a capture says best what is wrong with it."""
    return (path / storage.MANIFEST_FILE).is_file() and any(path.glob("rank=*"))


def _folder(path: Path, progress: Callable[[Path], None]) -> Capture:
    """All traces in a folder, joined. Files that are none are left out."""
    captures: list[Capture] = []
    problems: list[str] = []
    try:
        files = sorted(filter(_is_visible_file, path.iterdir()), key=_natural)
    except OSError as error:
        raise CaptureError(path, problem_of(error)) from error
    for file in files:
        try:
            captures.append(_file(file, progress))
        except (CaptureError, MissingDependencyError) as error:  # noqa: PERF203
            problems.append(f"{file.name}: {_problem(error)}")
    if not captures:
        raise CaptureError(
            path,
            f"no trace in this folder could be read, as in: {_first(problems)}"
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


def _is_visible_file(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sorts rank10 after rank9."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"([0-9]+)", path.name)
    ]
