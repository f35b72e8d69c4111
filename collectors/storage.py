"""Captures on disk: a folder of Parquet tables, one sub-folder a rank.

    NAME.gpuprof/
        manifest.json
        rank=0/process.json, kernels.parquet, ops.parquet, ...

A capture is written under a temporary name and renamed, so a reader sees all of it or nothing.
Tables without rows are not written. Whatever stands at its name and is no capture is left alone.

Whoever looks only at names and manifests does without the tables' library.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gpuprof.collectors.errors import CaptureError, CommandError, problem_of
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.collectors.files.writing import (
    refuse_taken,
    refuse_unwritable,
    under_a_temporary_name,
    write_parquet,
)
from gpuprof.collectors.manifest import CAPTURE_SCHEMA_VERSION, Manifest, ProcessInfo
from gpuprof.collectors.schema_version import schema_version

if TYPE_CHECKING:
    import polars as pl

    from gpuprof.collectors.capture import Capture

SUFFIX = ".gpuprof"
MANIFEST_FILE = "manifest.json"
PROCESS_FILE = "process.json"
# What `gpuprof run --nsys` keeps of Nsight Systems.
NSYS_REPORT = "report.nsys-rep"
# Files beside the manifest: what `save` is given as `extra`, and the results of a bench.
_FURTHER_FILES = ("analysis.json", "bench.json", "ranks.msgpack", NSYS_REPORT)
_RANK_FOLDER = re.compile(r"rank=\d+")

T = TypeVar("T")


def refuse_existing_capture(path: Path, *, force: bool) -> None:
    """Raise `CommandError` if no capture may or can be stored at `path`.

    `force` replaces captures and empty folders only.
    """
    refuse_taken(path, force=force)
    refuse_unwritable(path)
    if not os.path.lexists(path) or may_be_replaced(path):
        return
    if is_capture(path):
        other = _foreign(path)[0]
        raise CommandError(
            f"{path} holds {other.name}, which is no part of a capture, and will not be replaced; "
            "choose another -o"
        )
    raise CommandError(f"{path} is no capture and will not be replaced; choose another -o")


def is_capture(path: Path) -> bool:
    """Whether `path` is a folder that a capture was saved to, by what its manifest says."""
    try:
        manifest = decode_stored(stored_content(path / MANIFEST_FILE), _Marks)
    # CaptureError: there is none. ValueError: msgspec's errors, and invalid UTF-8.
    except (CaptureError, ValueError):
        return False
    return manifest.schema_version > 0 and bool(manifest.tool_version)


def may_be_replaced(path: Path) -> bool:
    """Whether replacing `path` loses nothing but a capture: one alone, or an empty folder."""
    if not path.is_dir():
        return False
    return not any(path.iterdir()) or (is_capture(path) and not _foreign(path))


def save(
    capture: "Capture",
    path: Path,
    *,
    extra: Mapping[str, bytes] | None = None,
    replaceable: Callable[[Path], bool] = may_be_replaced,
) -> Path:
    """Write `capture` as the folder `path`; returns where it is.

    `extra` are further files of the folder by name, such as the analysis. What stands at `path`
    is replaced where `replaceable` says so and it is a capture alone; else the capture goes
    beside it, to the first free name of `names_beside`.
    """
    with under_a_temporary_name(path) as temporary:
        if not os.path.lexists(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        (temporary / MANIFEST_FILE).write_bytes(_json(capture.manifest))
        for process in capture.processes:
            _save_rank(capture, process, temporary)
        for name, content in (extra or {}).items():
            (temporary / name).write_bytes(content)
        return next(
            place
            for place in names_beside(path)
            if _claim(temporary, place) or (replaceable(place) and _replace(temporary, place))
        )


def names_beside(path: Path) -> Iterator[Path]:
    """`path`, then `NAME.gpuprof` where that is another name, `NAME-2.gpuprof`, ..."""
    yield path
    stem = path.name.removesuffix(SUFFIX)
    if path.name != f"{stem}{SUFFIX}":
        yield path.with_name(f"{stem}{SUFFIX}")
    for number in count(2):
        yield path.with_name(f"{stem}-{number}{SUFFIX}")


def remove(path: Path) -> None:
    """Remove the capture in `path`; of what else lies there nothing is touched."""
    for entry in _own(path):
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
    with suppress(OSError):
        path.rmdir()


def _claim(temporary: Path, path: Path) -> bool:
    """Rename `temporary` to `path` if nothing stands there; of several processes one succeeds."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    try:
        temporary.rename(path)
    except OSError:
        # Somebody put something into it.
        if not path.is_dir() or any(path.iterdir()):
            return False
        raise
    return True


def _replace(temporary: Path, path: Path) -> bool:
    """Rename `temporary` to `path`, removing the capture that stood there, if that is all.

    That is moved out of the way as a whole first: tables without rows have no file, so a reader
    could not tell a capture that is half deleted from one without work.
    """
    if not may_be_replaced(path):
        return False
    former = temporary.with_suffix(".old")
    path.rename(former)
    if former.is_symlink():
        temporary.rename(path)
        former.unlink()
        return True
    # What a program put there came before the rename: it does not find the folder any more.
    if may_be_replaced(former):
        claimed = _claim(temporary, path)
        remove(former)
        return claimed
    former.rename(next(place for place in names_beside(path) if not os.path.lexists(place)))
    return False


def _foreign(path: Path) -> list[Path]:
    own = set(_own(path))
    return sorted(entry for entry in path.iterdir() if entry not in own)


def _own(path: Path) -> list[Path]:
    """What in the folder `path` is a capture's: its files, and folders of ranks with tables."""
    entries = [path / name for name in (MANIFEST_FILE, *_FURTHER_FILES)]
    return [entry for entry in entries if entry.is_file()] + [
        folder
        for folder in path.iterdir()
        if _RANK_FOLDER.fullmatch(folder.name)
        and folder.is_dir()
        and not folder.is_symlink()
        and all(file.name == PROCESS_FILE or file.suffix == ".parquet" for file in folder.iterdir())
    ]


def load(path: str | Path) -> "Capture":
    """Read the capture stored in the folder `path`.

    Raises `CaptureError` where the folder is not a capture or was made by a newer gpuprof.
    """
    import polars as pl

    from gpuprof.collectors import schema
    from gpuprof.collectors.capture import Capture

    path = Path(path)
    manifest = load_manifest(path)
    processes = tuple(load_process(path, rank) for rank in manifest.ranks)
    tables = {
        name: pl.concat([_load_table(path, rank, name) for rank in manifest.ranks])
        for name in schema.TABLES
    }
    return Capture(manifest, processes, **tables)


def load_rank(path: Path, rank: int) -> "Capture":
    """Read one rank of the capture in the folder `path`: the others may not be there.

    Raises `CaptureError` as `load`.
    """
    from gpuprof.collectors import schema
    from gpuprof.collectors.capture import Capture

    manifest = msgspec.structs.replace(load_manifest(path), ranks=(rank,))
    tables = {name: _load_table(path, rank, name) for name in schema.TABLES}
    return Capture(manifest, (load_process(path, rank),), **tables)


def load_manifest(path: Path) -> Manifest:
    """Read only the manifest of the capture in `path`."""
    if not path.exists():
        raise CaptureError(path, "no such capture", remedy="make one with `gpuprof run script.py`")
    file = path / MANIFEST_FILE
    if not file.is_file():
        raise CaptureError(
            path,
            "not a capture",
            expected=f"a folder with {MANIFEST_FILE}",
            remedy=f"`gpuprof analyze {path}` makes one of a trace",
        )
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


class _Marks(msgspec.Struct):
    """By which a manifest of any gpuprof is told from a file of the same name."""

    schema_version: int
    tool_version: str
    source: str
    created_ns: int
    ranks: msgspec.Raw


def _save_rank(capture: "Capture", process: ProcessInfo, folder: Path) -> None:
    import polars as pl

    rank_folder = folder / f"rank={process.rank}"
    rank_folder.mkdir()
    (rank_folder / PROCESS_FILE).write_bytes(_json(process))
    for name, frame in capture.tables().items():
        rows = frame.filter(pl.col("rank") == process.rank).drop("rank")
        if rows.height:
            write_parquet(rows, rank_folder / f"{name}.parquet")


def _load_table(path: Path, rank: int, name: str) -> "pl.DataFrame":
    import polars as pl

    from gpuprof.collectors import schema
    from gpuprof.collectors.files.parquet import read_table
    from gpuprof.collectors.stored_tables import refuse_damaged

    file = path / f"rank={rank}" / f"{name}.parquet"
    if not file.exists():
        return schema.empty(name)
    known = {*schema.TABLES[name], *schema.FORMER_NAMES}
    try:
        frame = read_table(file, lambda found: [pl.col(each) for each in found if each in known])
        frame = frame.rename(schema.FORMER_NAMES, strict=False)
        frame = schema.conform(name, frame.with_columns(pl.lit(rank, pl.Int32).alias("rank")))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise CaptureError(
            file,
            f"not readable as Parquet: {problem_of(error)}",
            remedy="collect the capture again",
        ) from error
    refuse_damaged(file, name, frame)
    return frame


def _json(struct: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(struct), indent=1)


def _decode(file: Path, kind: type[T]) -> T:
    return _read(file, lambda content: decode_stored(content, kind))


def _read(file: Path, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(stored_content(file))
    # ValueError: msgspec's errors, and invalid UTF-8.
    except (CaptureError, ValueError) as error:
        problem = error.problem if isinstance(error, CaptureError) else problem_of(error)
        raise CaptureError(file, problem, remedy="collect the capture again") from error
