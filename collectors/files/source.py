"""The bytes of a trace file, plain or gzip, as a stream of pieces of bounded size."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from isal import isal_zlib
from isal.isal_zlib import IsalError

from gpuprof.collectors.errors import CaptureError, problem_of

PIECE_BYTES = 1 << 20
# A damaged stream loses the output of the call that finds the damage: at most this much.
_OUTPUT_BYTES = 1 << 18
_GZIP_MAGIC = b"\x1f\x8b"
# zlib's code for "a gzip member with its header and checksum".
_GZIP_WINDOW = 31
# Traces compress 14 to 60 times. Deflate's own limit is 1032, which only repeated bytes reach.
_BOMB_RATIO = 300
_BOMB_BYTES = 256 << 20


class ByteSource:
    """Iterates over the decompressed bytes of `path`.

    gzip is recognised by its first bytes, not by the file's name. `problem` is "" until the
    stream turns out to be cut off or damaged, which ends the iteration early.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.bytes_out = 0

    def __iter__(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                first = file.read(PIECE_BYTES)
                pieces = _pieces(first, iter(lambda: file.read(PIECE_BYTES), b""))
                if first.startswith(_GZIP_MAGIC):
                    pieces = self._inflate(pieces)
                for piece in pieces:
                    self.bytes_out += len(piece)
                    yield piece
        except OSError as error:
            raise CaptureError(self.path, problem_of(error)) from error

    def _inflate(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        bytes_in = 0
        member = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        rest = b""
        for piece in pieces:
            bytes_in += len(piece)
            rest += piece
            while rest:
                if member.eof:
                    # gzip files may be joined end to end; what follows may also be padding.
                    if rest == _GZIP_MAGIC[:1]:
                        break
                    if not rest.startswith(_GZIP_MAGIC):
                        return
                    member = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
                try:
                    output = member.decompress(rest, _OUTPUT_BYTES)
                except IsalError as error:  # type: ignore[misc]  # isal's stubs declare an instance
                    self.problem = f"its gzip stream is damaged ({error})"
                    return
                rest = member.unused_data if member.eof else member.unconsumed_tail
                self._refuse_bomb(bytes_in, len(output))
                if output:
                    yield output
        # What fits neither into the output limit nor into the input stays inside the decompressor.
        while not member.eof:
            try:
                output = member.decompress(b"", _OUTPUT_BYTES)
            except IsalError as error:  # type: ignore[misc]  # isal's stubs declare an instance
                self.problem = f"its gzip stream is damaged ({error})"
                return
            if not output:
                self.problem = "its gzip stream ends early"
                return
            self._refuse_bomb(bytes_in, len(output))
            yield output

    def _refuse_bomb(self, bytes_in: int, new_bytes: int) -> None:
        total = self.bytes_out + new_bytes
        if total > _BOMB_BYTES and total > _BOMB_RATIO * bytes_in:
            raise CaptureError(
                self.path,
                f"decompresses to more than {_BOMB_RATIO} times its size",
                place=f"byte {bytes_in}",
                expected="a profiler trace",
                remedy="decompress it yourself if you trust it",
            )


def whole_content(path: Path, largest: int, *, what: str, remedy: str) -> bytes:
    """All decompressed bytes of `path`, which is `what` ("a snapshot").

    Raises `CaptureError` where they are more than `largest`, with `remedy`, or damaged.
    """
    source = ByteSource(path)
    # Its bytes are given away, where those of a list of pieces or of a bytearray are copied.
    content = BytesIO()
    for piece in source:
        content.write(piece)
        if content.tell() > largest:
            limit = f"{largest >> 30} GiB" if largest >= 1 << 30 else f"{largest >> 20} MiB"
            raise CaptureError(path, f"{what} of more than {limit}", remedy=remedy)
    if source.problem:
        raise damaged(source)
    return content.getvalue()


def damaged(source: ByteSource) -> CaptureError:
    """What to raise where the stream ended early."""
    return CaptureError(source.path, source.problem, place=f"byte {source.bytes_out}")


def _pieces(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
