"""Files that may be gzip-compressed, as plain files."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.files.source import ByteSource
from gpuprof.collectors.files.temporary import temporary_folder

_GZIP_MAGIC = b"\x1f\x8b"


def first_bytes(path: Path, count: int) -> bytes:
    """The first `count` bytes of a file; fewer where it is shorter.

    Raises `CaptureError` where the file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise CaptureError(path, problem_of(error)) from error


@contextmanager
def plain_file(path: Path) -> Iterator[Path]:
    """`path` itself, or its decompressed content in a temporary file that is removed afterwards.

    Raises `CaptureError` where the gzip stream is damaged, cut off, expands out of proportion or
    has no room.
    """
    if first_bytes(path, len(_GZIP_MAGIC)) != _GZIP_MAGIC:
        yield path
        return
    with temporary_folder("gzip") as folder:
        target = folder / (path.stem or "decompressed")
        _decompress(path, target)
        yield target


def _decompress(path: Path, target: Path) -> None:
    free = shutil.disk_usage(target.parent).free
    source = ByteSource(path)
    try:
        with target.open("wb") as sink:
            for piece in source:
                if source.bytes_out > free:
                    raise CaptureError(path, "no room for its content in the temporary folder")
                sink.write(piece)
    except OSError as error:
        problem = f"its content cannot be written to the temporary folder: {problem_of(error)}"
        raise CaptureError(path, problem) from error
    # A database or report cannot be read in part, as a trace can.
    if source.problem:
        raise CaptureError(path, source.problem, place=f"after {source.bytes_out} bytes")
