"""From the path of a capture to its analysis, the short way where there is one."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.collectors.plugins import PluginUse
from gpuprof.collectors.schema_version import schema_version
from gpuprof.profiler.reading_process import import_polars
from gpuprof.roofline.analysis import ANALYSIS_FILE, ANALYSIS_SCHEMA_VERSION, Analysis
from gpuprof.roofline.asked_plugins import can_be_read_here, installed_plugins

if TYPE_CHECKING:
    from gpuprof.collectors.capture import Capture

_log = logging.getLogger(__name__)


def load_analysis(path: Path, rank: int | None = None) -> Analysis:
    """The analysis of one rank of the capture in `path`, of the one it was stored with if None.

    The one stored with the capture where it has this gpuprof's schema, which needs no table to be
    read; else it is made from the tables, or from the file of that rank, and not stored. Raises
    `CaptureError`, and `CommandError` for a rank that is not there.
    """
    stored = read_stored_analysis(path)
    if stored is not None and rank in (None, stored.rank):
        return stored
    # Reading the tables imports polars, which takes longer than the rest of the command.
    return _analysed(path, rank)[1]


def read_capture_and_analysis(path: Path, rank: int | None) -> "tuple[Capture, Analysis]":
    """A capture, or what another tool recorded, and its analysis of one rank, as `load_analysis`.

    Raises as that.
    """
    import_polars()
    from gpuprof.collectors import storage
    from gpuprof.profiler.traces import analyze_rank, read_run
    from gpuprof.reports.console.streams import write_note

    if (path / storage.MANIFEST_FILE).is_file():
        stored = read_stored_analysis(path)
        if stored is not None and rank in (None, stored.rank):
            return storage.load(path), stored
        return _analysed(path, rank)
    capture = read_run([path], lambda stage: write_note(f"gpuprof: {stage}"))
    return capture, analyze_rank(capture, rank)


def _analysed(path: Path, rank: int | None) -> "tuple[Capture, Analysis]":
    """The capture in `path` and its analysis of one rank, the first if None."""
    import_polars()
    from gpuprof.collectors import storage
    from gpuprof.profiler.cluster.analysis import analyze_of_job, capture_of_rank
    from gpuprof.profiler.cluster.job import JOB_FILE, read_job_file
    from gpuprof.profiler.traces import analyze_rank

    capture = storage.load(path)
    if not (path / JOB_FILE).is_file():
        return capture, analyze_rank(capture, rank)
    job = read_job_file(path)
    if rank not in (None, *capture.manifest.ranks):
        # It is not stored here: only what its summary holds.
        capture = capture_of_rank(job, rank)
    return capture, analyze_of_job(job, capture)


def store(
    capture: "Capture",
    analysis: Analysis | None,
    path: Path,
    *,
    replaceable: Callable[[Path], bool] | None = None,
    further: Mapping[str, bytes] | None = None,
) -> Path:
    """Write `capture` with its analysis, if any, as the folder `path`, or beside it; returns where.

    `further` are more files of the folder by name. What stands at `path` is replaced where it is a
    capture and nothing else, and where `replaceable`, if given, says so too.
    """
    from gpuprof.collectors import storage

    analysed = {} if analysis is None else {ANALYSIS_FILE: msgspec.json.encode(analysis)}
    stored = storage.save(
        capture,
        path,
        extra={**analysed, **(further or {})},
        replaceable=replaceable or storage.may_be_replaced,
    )
    _log.info("stored %s", stored)
    return stored


def read_stored_analysis(path: Path) -> Analysis | None:
    """The stored analysis, or None where there is none or it has another schema.

    None too where plug-ins are installed here that were not asked, or have another version now.
    """
    file = path / ANALYSIS_FILE
    if not os.path.lexists(file):
        return None
    content = stored_content(file)
    try:
        if schema_version(content) != ANALYSIS_SCHEMA_VERSION or not _is_current(content):
            return None
        return decode_stored(content, Analysis)
    # msgspec's errors, and invalid UTF-8.
    except ValueError as error:
        raise CaptureError(
            file, problem_of(error), remedy="delete it to have it made again from the tables"
        ) from error


class _Plugins(msgspec.Struct, frozen=True):
    """The part of a stored analysis that is about plug-ins."""

    plugins: tuple[PluginUse, ...] = ()
    installed_plugins: tuple[str, ...] = ()


def _is_current(content: bytes) -> bool:
    """Whether an analysis made here now could be read, and would ask no other plug-ins."""
    stored = decode_stored(content, _Plugins)
    asked = set(stored.installed_plugins)
    return asked.issuperset(installed_plugins()) and can_be_read_here(stored.plugins)
