"""The files of a job's ranks, on this machine or wherever fsspec reads from."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gpuprof.collectors import storage
from gpuprof.collectors.distribution import with_extra
from gpuprof.collectors.errors import (
    CaptureError,
    GpuprofError,
    MissingDependencyError,
    describe,
    problem_of,
)
from gpuprof.collectors.files.temporary import temporary_folder
from gpuprof.collectors.nsys import is_parquet_folder
from gpuprof.collectors.opening.formats import refuse_folder

# s3://bucket/key, and fsspec's chains of them: simplecache::s3://bucket/key
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*(?:::.*)?://", re.IGNORECASE)
_RANK_FOLDER: Final = re.compile(r"rank=(\d+)")


def is_address(place: str) -> bool:
    """Whether `place` is no path of this machine but an address such as s3://bucket/folder."""
    return _ADDRESS.match(place) is not None


def name_of(place: str) -> str:
    """The last part of a path or address: what messages call it."""
    return place.rstrip("/").rsplit("/", 1)[-1] or place


def files_of_ranks(place: str) -> tuple[str, ...]:
    """What is to be read for the ranks in `place`: rank10 comes after rank9.

    A folder of traces has its visible files, a capture its folders of ranks, also where it lies
    among others in a folder; a file itself. Raises `CaptureError` where nothing is there.
    """
    found = _within(place)
    if found is None:
        return (place,)
    files: list[str] = []
    for each in sorted(found, key=_natural):
        if each.endswith(storage.SUFFIX):
            files += sorted(_within(each) or (each,), key=_natural)
        else:
            files.append(each)
    if not files:
        raise CaptureError(place, "no files here", expected="traces of ranks, or a capture")
    return tuple(files)


def _within(place: str) -> list[str] | None:
    """What of the folder `place` may hold ranks; None for a file."""
    entries = _remote_entries(place) if is_address(place) else _local_entries(Path(place))
    if entries is None:
        return None
    folders = [path for path, is_folder in entries if is_folder]
    ranks = [path for path in folders if _RANK_FOLDER.fullmatch(name_of(path))]
    if ranks:
        return ranks
    captures = [path for path in folders if path.endswith(storage.SUFFIX)]
    files = [path for path, is_folder in entries if not is_folder]
    return captures + [path for path in files if not name_of(path).startswith(".")]


def _local_entries(path: Path) -> list[tuple[str, bool]] | None:
    if not path.exists():
        raise CaptureError(path, "no such file or folder")
    if not path.is_dir() or is_parquet_folder(path):
        return None
    refuse_folder(path)
    try:
        return [(str(entry), entry.is_dir()) for entry in path.iterdir()]
    except OSError as error:
        raise CaptureError(path, problem_of(error)) from error


def _remote_entries(place: str) -> list[tuple[str, bool]] | None:
    files, path = _file_system(place)
    try:
        if not files.exists(path):
            raise CaptureError(place, "no such file or folder")
        if not files.isdir(path):
            return None
        return [
            (files.unstrip_protocol(entry["name"]), entry["type"] == "directory")
            for entry in files.ls(path, detail=True)
        ]
    except GpuprofError:
        raise
    # Each file system of fsspec has its own errors.
    except Exception as error:
        raise CaptureError(place, describe(error)) from error


@contextmanager
def on_this_machine(place: str) -> Iterator[Path]:
    """The file `place`, or the folder of a rank, under a path of this machine in the context.

    What lies elsewhere is copied, a rank's folder with the manifest beside it, and the copy is
    removed. Raises what its file system does.
    """
    if not is_address(place):
        yield Path(place)
        return
    files, path = _file_system(place)
    with temporary_folder("copy") as folder:
        copy = Path(folder, name_of(place))
        if _RANK_FOLDER.fullmatch(copy.name):
            files.get(path, str(copy), recursive=True)
            manifest = f"{path.rpartition('/')[0]}/{storage.MANIFEST_FILE}"
            files.get(manifest, str(copy.with_name(storage.MANIFEST_FILE)))
        else:
            files.get(path, str(copy))
        yield copy


def rank_of_folder(path: Path) -> int | None:
    """The rank whose tables the folder `path` of a capture holds; None for all else."""
    match = _RANK_FOLDER.fullmatch(path.name)
    return int(match[1]) if match and path.is_dir() else None


def _file_system(place: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as error:
        raise MissingDependencyError("fsspec", f"read {place}", with_extra("cluster")) from error
    try:
        found: tuple[Any, str] = url_to_fs(place)
    # A protocol that nothing knows, or whose package is not installed.
    except (ValueError, ImportError) as error:
        raise CaptureError(place, str(error)) from error
    return found


def _natural(path: str) -> list[tuple[int, str]]:
    """Sorts rank10 after rank9."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"([0-9]+)", name_of(path))
    ]
