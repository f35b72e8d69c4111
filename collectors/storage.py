"""Captures on disk: a folder of Parquet tables, one sub-folder a rank.

    NAME.gpuprof/
        manifest.json
        rank=0/process.json, kernels.parquet, ops.parquet, ...

A capture is written under a temporary name and renamed, so a reader sees all of it or nothing.
Tables without rows are not written.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError, CommandError
from gpuprof.collectors.manifest import CAPTURE_SCHEMA_VERSION, Manifest, ProcessInfo
from gpuprof.collectors.schema_version import schema_version

MANIFEST_FILE = "manifest.json"
PROCESS_FILE = "process.json"

T = TypeVar("T")


def refuse_existing(path: Path, *, force: bool, option: str = "-o") -> None:
    """Raise `CommandError` if `path` exists and may not be replaced, or cannot be made.

    Called before any work starts, so that nothing is measured only to be thrown away.
    """
    other = f"choose another {option}"
    if path.exists() and not force:
        raise CommandError(f"{path} exists; {other} or pass --force to replace it")
    parent = path.absolute().parent
    if not parent.is_dir():
        raise CommandError(f"{parent} is not a folder; make it first or {other}")
    if not os.access(parent, os.W_OK):
        raise CommandError(f"{parent} cannot be written to; {other}")


def refuse_existing_capture(path: Path, *, force: bool) -> None:
    """As `refuse_existing`; and `force` replaces captures and empty folders only."""
    refuse_existing(path, force=force)
    replaceable = is_capture(path) or (path.is_dir() and not any(path.iterdir()))
    if path.exists() and not replaceable:
        raise CommandError(f"{path} is no capture and will not be replaced; choose another -o")


def is_capture(path: Path) -> bool:
    """Whether `path` is a folder that a capture was saved to."""
    return (path / MANIFEST_FILE).is_file()


def save(capture: Capture, path: Path, *, extra: Mapping[str, bytes] | None = None) -> None:
    """Write `capture` as the folder `path`, replacing what a former save left there.

    `extra` are further files of the folder by name, such as the analysis.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        (temporary / MANIFEST_FILE).write_bytes(_json(capture.manifest))
        for process in capture.processes:
            _save_rank(capture, process, temporary)
        for name, content in (extra or {}).items():
            (temporary / name).write_bytes(content)
        replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def replace(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`, removing what stood there.

    That is moved out of the way as a whole first: tables without rows have no file, so a reader
    could not tell a capture that is half deleted from one without work.
    """
    former = temporary.with_suffix(".old")
    shutil.rmtree(former, ignore_errors=True)
    if path.exists() or path.is_symlink():
        path.rename(former)
    temporary.rename(path)
    if former.is_dir() and not former.is_symlink():
        shutil.rmtree(former)
    else:
        former.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Write one file under a temporary name and rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def load(path: str | Path) -> Capture:
    """Read the capture stored in the folder `path`.

    Raises `CaptureError` where the folder is not a capture or was made by a newer gpuprof.
    """
    path = Path(path)
    manifest = load_manifest(path)
    processes = tuple(load_process(path, rank) for rank in manifest.ranks)
    tables = {
        name: pl.concat([_load_table(path, rank, name) for rank in manifest.ranks])
        for name in schema.TABLES
    }
    return Capture(manifest, processes, **tables)


def load_manifest(path: Path) -> Manifest:
    """Read only the manifest of the capture in `path`."""
    if not path.exists():
        raise CaptureError(path, "no such capture", remedy="make one with `gpuprof run script.py`")
    file = path / MANIFEST_FILE
    if not file.is_file():
        raise CaptureError(path, "not a capture", expected=f"a folder with {MANIFEST_FILE}")
    version = _read(file, schema_version)
    if version > CAPTURE_SCHEMA_VERSION:
        raise CaptureError(
            file,
            f"schema version {version}",
            expected=f"at most {CAPTURE_SCHEMA_VERSION}",
            remedy="upgrade gpuprof",
        )
    manifest = _decode(file, Manifest)
    if not manifest.ranks or len(set(manifest.ranks)) < len(manifest.ranks):
        raise CaptureError(
            file, f"ranks {list(manifest.ranks)}", expected="at least one, each once"
        )
    return manifest


def load_process(path: Path, rank: int) -> ProcessInfo:
    """Read what the capture in `path` says of one process."""
    file = path / f"rank={rank}" / PROCESS_FILE
    process = _decode(file, ProcessInfo)
    if process.rank != rank:
        raise CaptureError(file, f"rank {process.rank}", expected=f"rank {rank}, as its folder")
    return process


def _save_rank(capture: Capture, process: ProcessInfo, folder: Path) -> None:
    rank_folder = folder / f"rank={process.rank}"
    rank_folder.mkdir()
    (rank_folder / PROCESS_FILE).write_bytes(_json(process))
    for name, frame in capture.tables().items():
        rows = frame.filter(pl.col("rank") == process.rank).drop("rank")
        if rows.height:
            rows.write_parquet(rank_folder / f"{name}.parquet")


def _load_table(path: Path, rank: int, name: str) -> pl.DataFrame:
    file = path / f"rank={rank}" / f"{name}.parquet"
    if not file.exists():
        return schema.empty(name)
    try:
        # A name may hold what a pattern reads otherwise: brackets, stars.
        frame = pl.read_parquet(file, hive_partitioning=False, glob=False)
        return schema.conform(name, frame.with_columns(pl.lit(rank, pl.Int32).alias("rank")))
    except (pl.exceptions.PolarsError, OSError) as error:
        # Polars explains over several lines; the first says what is wrong.
        problem = next(iter(str(error).splitlines()), type(error).__name__)
        raise CaptureError(
            file, f"not readable as Parquet: {problem}", remedy="collect the capture again"
        ) from error


def _json(struct: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(struct), indent=1)


def _decode(file: Path, kind: type[T]) -> T:
    return _read(file, lambda content: msgspec.json.decode(content, type=kind))


def _read(file: Path, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(file.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise CaptureError(file, str(error), remedy="collect the capture again") from error
