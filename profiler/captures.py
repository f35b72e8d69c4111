"""From the path of a capture to its analysis, the short way where there is one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.schema_version import schema_version
from gpuprof.roofline.analysis import ANALYSIS_FILE, ANALYSIS_SCHEMA_VERSION, Analysis

if TYPE_CHECKING:
    from gpuprof.collectors.capture import Capture


def load_analysis(path: Path) -> Analysis:
    """The analysis of the capture in `path`.

    The one stored with the capture where it has this gpuprof's schema, which needs no table to be
    read; else it is made from the tables and not stored. Raises `CaptureError`.
    """
    stored = read_stored_analysis(path)
    if stored is not None:
        return stored
    # Reading the tables imports polars, which takes longer than the rest of the command.
    from gpuprof.collectors import storage
    from gpuprof.roofline.analyze import analyze

    return analyze(storage.load(path))


def read_capture_and_analysis(path: Path, rank: int | None) -> "tuple[Capture, Analysis]":
    """A capture, or what another tool recorded, and its analysis of one rank, the first if None.

    Raises `CaptureError`.
    """
    from gpuprof.collectors import storage
    from gpuprof.profiler.traces import analyze_rank, read_run
    from gpuprof.reports.console.streams import write_note

    if (path / storage.MANIFEST_FILE).is_file():
        capture = storage.load(path)
        stored = read_stored_analysis(path)
        if stored is not None and rank in (None, stored.rank):
            return capture, stored
    else:
        capture = read_run([path], lambda stage: write_note(f"gpuprof: {stage}"))
    return capture, analyze_rank(capture, rank)


def store(
    capture: "Capture",
    analysis: Analysis,
    path: Path,
    *,
    replaceable: Callable[[Path], bool] | None = None,
    further: Mapping[str, bytes] | None = None,
) -> Path:
    """Write `capture` with its analysis as the folder `path`, or beside it; returns where.

    `further` are more files of the folder by name. What stands at `path` is replaced where it is a
    capture and nothing else, and where `replaceable`, if given, says so too.
    """
    from gpuprof.collectors import storage

    return storage.save(
        capture,
        path,
        extra={ANALYSIS_FILE: msgspec.json.encode(analysis), **(further or {})},
        replaceable=replaceable or storage.may_be_replaced,
    )


def read_stored_analysis(path: Path) -> Analysis | None:
    """The stored analysis, or None where there is none or it has another schema."""
    file = path / ANALYSIS_FILE
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CaptureError(file, problem_of(error)) from error
    try:
        if schema_version(content) != ANALYSIS_SCHEMA_VERSION:
            return None
        return msgspec.json.decode(content, type=Analysis)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CaptureError(
            file, str(error), remedy="delete it to have it made again from the tables"
        ) from error
