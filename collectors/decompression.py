"""Files that may be gzip-compressed, as plain files, with a bound on what they may grow to."""

import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import BadGzipFile, GzipFile
from pathlib import Path
from typing import BinaryIO

from gpuprof.collectors.errors import CaptureError

GZIP_MAGIC = b"\x1f\x8b"

# Profiler files compress 5 to 25 times. DEFLATE reaches 1032 times only on constant bytes, which
# is what a decompression bomb is made of. Small files may expand freely up to the first figure.
_FREE_EXPANSION_BYTES = 64 * 2**20
_MAXIMUM_EXPANSION = 200
_BLOCK_BYTES = 2**20


def is_gzip(path: Path) -> bool:
    """Whether the file starts as gzip does, whatever its name says."""
    return first_bytes(path, len(GZIP_MAGIC)) == GZIP_MAGIC


def first_bytes(path: Path, count: int) -> bytes:
    """The first `count` bytes of a file; fewer where it is shorter.

    Raises `CaptureError` where the file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise CaptureError(path, error.strerror or str(error)) from error


@contextmanager
def plain_file(path: Path) -> Iterator[Path]:
    """`path` itself, or its decompressed content in a temporary file that is removed afterwards.

    Raises `CaptureError` where the gzip stream is damaged, cut off or expands out of proportion.
    """
    if not is_gzip(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as folder:
        target = Path(folder) / (path.stem or "decompressed")
        with path.open("rb") as source, target.open("wb") as sink:
            try:
                _expand(path, source, sink)
            except OSError as error:
                raise CaptureError(path, f"could not be decompressed: {error}") from error
        yield target


def _expand(path: Path, source: BinaryIO, sink: BinaryIO) -> None:
    limit = max(_FREE_EXPANSION_BYTES, _MAXIMUM_EXPANSION * path.stat().st_size)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    written = 0
    try:
        with GzipFile(fileobj=source) as stream:
            while block := stream.read(_BLOCK_BYTES):
                written += len(block)
                if written > limit:
                    raise CaptureError(
                        path,
                        f"expands to more than {_MAXIMUM_EXPANSION} times its size",
                        remedy="if the file is genuine, decompress it and pass the plain file",
                    )
                if written > free:
                    raise CaptureError(path, "no room for its content in the temporary folder")
                sink.write(block)
    except (BadGzipFile, EOFError, zlib.error) as error:
        raise CaptureError(
            path, f"not a complete gzip file: {error}", place=f"after {written} decompressed bytes"
        ) from error
