"""Cuts the text of a trace into blocks of whole events and decodes them.

The array `traceEvents` is never parsed as a whole: blocks of about 2 MB end where an event starts
(found by the layout of the first event), so memory stays flat and a damaged event costs only
itself. A cut in the wrong place leaves an unclosed object, which does not decode; the block is
then scanned element by element.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.source import ByteSource
from gpuprof.collectors.kineto import decode
from gpuprof.collectors.kineto.buffers import Buffers, Elements
from gpuprof.collectors.kineto.decode import Batch
from gpuprof.collectors.kineto.findings import Findings

BLOCK_BYTES: Final = 2 << 20
# One event, the text before traceEvents and the text behind it are each held in memory whole.
_LONGEST: Final = 64 << 20
# An event that has not ended by here is damaged, if another seems to start behind it.
_LONGEST_PLAUSIBLE: Final = 4 << 20
# After so many damaged events, the layout alone says where events start.
_DISTRUST: Final = 50
# Places where the header or the array may end that are tried.
_CANDIDATES: Final = 8
# Decoders go no deeper.
_DEEPEST: Final = 1000
# So many elements that are no events, and not as many that are, make no trace.
_MOST_MALFORMED: Final = 1_000_000

_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_KEY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_SEPARATORS: Final = b", \t\r\n"
_BETWEEN: Final = re.compile(rb"[\s,]*")
_INDENT: Final = re.compile(rb"\s*(\n[ \t]*)\{")
_END: Final = re.compile(rb"\}\s*\]")
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_SCALAR: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^,\]{}\[]+', re.DOTALL)
# Between two events on one line. A quote cannot stand inside a string.
_COMPACT: Final = (b'},{"', b'}, {"')


class Take(Protocol):
    """Takes a block from here by answering True; no batch comes of it then."""

    def __call__(self, number: int, elements: Elements, *, now: bool) -> bool:
        """Whether it was taken; with `now`, whether it holds valid events too.

        Of a block that was taken the buffer is the taker's, and goes back to the `Buffers`.
        """


class Blocks:
    """Iterates over the events of `source` in numbered batches; `metadata` is complete afterwards.

    What `take` takes is in none of them.
    """

    def __init__(
        self,
        source: ByteSource,
        findings: Findings,
        take: Take,
        buffers: Buffers,
    ) -> None:
        self.metadata: dict[str, object] = {}
        self._source = source
        self._findings = findings
        self._take = take
        self._buffers = buffers
        self._number = 0
        self._pieces = iter(source)
        # What did not fit into the buffer of the last piece.
        self._piece = memoryview(b"")
        self._exhausted = False
        # What was read and not yet used. Starts with the header, then inside traceEvents.
        self._buffer = bytearray()
        # None for a bare array of events.
        self._header: bytes | None = None
        # What an event starts with where each has a line of its own, else b"".
        self._marker = b""
        self._ended = False
        # What comes behind are zeros, as of a file whose last blocks were not written.
        self._zeros = False
        self._events = 0

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        self._find_events()
        while not self._ended:
            self._fill(BLOCK_BYTES)
            self._number += 1
            batch = self._last() if self._exhausted else self._next()
            if batch is not None:
                self._events += len(batch.events)
                self._refuse_other_elements()
                yield self._number, batch
            elif self._exhausted:
                break
        self._read_metadata()

    def _find_events(self) -> None:
        """Read up to the first element of traceEvents; the text before it is the header."""
        searched = 0
        while True:
            self._fill(max(2 * len(self._buffer), BLOCK_BYTES))
            text = bytes(self._buffer).removeprefix(_BYTE_ORDER_MARK).lstrip()
            if text.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
                raise CaptureError(
                    self._source.path,
                    "a tar archive",
                    expected="a profiler trace",
                    remedy="unpack it and pass the files in it",
                )
            if text.startswith(b"["):
                self._buffer = bytearray(text[1:])
                break
            match = self._key(text, searched)
            if match is not None:
                self._header = text[: match.start()]
                self._buffer = bytearray(text[match.end() :])
                break
            # The key may lie across two pieces.
            searched = max(0, len(text) - 64)
            if self._exhausted or len(text) > _LONGEST:
                self._salvage_header(text)
                break
        indent = _INDENT.match(self._buffer)
        self._marker = indent[1] + b"{" if indent else b""

    def _key(self, text: bytes, start: int) -> re.Match[bytes] | None:
        """The key traceEvents of the trace itself, not one inside a string of its metadata."""
        for match in islice(_KEY.finditer(text, start), _CANDIDATES):
            if decode.document(text[: match.start()] + b'"traceEvents":[]}') is not None:
                return match
        return None

    def _salvage_header(self, text: bytes) -> None:
        """Take the first thing that looks like the key, or refuse with the reason."""
        match = _KEY.search(text)
        if match is not None:
            self._findings.damaged_header = True
            self._header, self._buffer = b"{", bytearray(text[match.end() :])
            return
        path = self._source.path
        why = f"; {self._source.problem}" if self._source.problem else ""
        if not text.strip(b"\0 \t\r\n"):
            raise CaptureError(
                path, f"no events: the file is empty{why}", remedy="record the trace again"
            )
        if not text.startswith(b"{"):
            raise CaptureError(
                path,
                f"not a profiler trace{why}",
                place="byte 0",
                expected="JSON that starts with { or [",
            )
        raise CaptureError(
            path,
            f"no events: no array traceEvents in {self._source.bytes_out} bytes{why}",
            remedy="export the trace with torch.profiler's export_chrome_trace",
        )

    def _fill(self, size: int) -> None:
        """Read until the buffer holds `size` bytes or the source is exhausted."""
        held = len(self._buffer)
        if held >= size or self._exhausted:
            return
        buffer = self._buffers.take(size)
        # Through a view: a bytearray copies first what it is given of another type.
        with memoryview(buffer) as room:
            room[:held] = self._buffer
            while held < size and (piece := self._next_piece()):
                fits = piece[: size - held]
                room[held : held + len(fits)] = fits
                held += len(fits)
                self._piece = piece[len(fits) :]
        if self._exhausted:
            del buffer[held:]
            self._buffer = buffer.rstrip(b"\0")
        else:
            self._buffer = buffer

    def _next_piece(self) -> memoryview:
        """What comes next in the source, empty where that is exhausted."""
        if self._piece:
            return self._piece
        piece = next(self._pieces, b"")
        self._zeros = bool(piece) and not piece.strip(b"\0")
        self._exhausted = self._zeros or not piece
        return memoryview(b"" if self._exhausted else piece)

    def _next(self) -> Batch | None:
        """The next block; None where it was handed over or more of the file is needed."""
        cut = self._last_start()
        if cut:
            elements = _elements(self._buffer, cut)
            # Before the buffer is another's.
            rest = self._buffer[cut:]
            if self._take(self._number, elements, now=False):
                self._buffer = rest
                return None
            text = elements.array()
            batch = decode.valid(text, self._findings) or decode.repaired(text, self._findings)
            if batch is not None:
                self._buffer = rest
                return batch
        # No event of torch's, but other elements may be cut between any two.
        cut = self._buffer.rfind(b",") + 1
        text = _elements(self._buffer, cut).array()
        batch = decode.valid(text, self._findings) if cut else None
        if batch is not None:
            self._buffer = self._buffer[cut:]
            return batch
        batch, consumed = self._scan()
        self._buffer = self._buffer[consumed:]
        if not consumed:
            self._grow()
        return batch

    def _last(self) -> Batch | None:
        """The events up to the end of the array, or of a file that was cut off."""
        for match in islice(_END.finditer(self._buffer, self._last_start()), _CANDIDATES):
            elements = _elements(self._buffer, match.start() + 1)
            rest = self._buffer[match.end() :]
            taken = self._take(self._number, elements, now=True)
            batch = None if taken else decode.valid(elements.array(), self._findings)
            if taken or batch is not None:
                self._buffer = rest
                self._ended = True
                return batch
        batch, consumed = self._scan()
        self._buffer = self._buffer[consumed:]
        return batch if consumed else None

    def _refuse_other_elements(self) -> None:
        malformed = self._findings.malformed
        if malformed > _MOST_MALFORMED and malformed > self._events:
            raise CaptureError(
                self._source.path,
                f"{malformed} elements of traceEvents are no events",
                expected="a profiler trace",
                remedy="export the trace with torch.profiler's export_chrome_trace",
            )

    def _last_start(self) -> int:
        """Where the last event of the buffer starts; 0 where that is unknown or the first."""
        if self._marker:
            return max(self._buffer.rfind(self._marker), 0)
        for separator in _COMPACT:
            position = self._buffer.rfind(separator)
            if position > 0:
                return position + len(separator) - 2
        return 0

    def _grow(self) -> None:
        if len(self._buffer) > _LONGEST:
            raise CaptureError(
                self._source.path,
                f"an event is longer than {_LONGEST >> 20} MB",
                place=f"byte {self._source.bytes_out - len(self._piece) - len(self._buffer)}",
                expected="a profiler trace",
            )
        self._fill(2 * len(self._buffer))

    def _scan(self) -> tuple[Batch, int]:
        """The whole elements at the start of the buffer, one at a time, and how far they reach.

        Sets `_ended` at the end of the array.
        """
        buffer = self._buffer
        found = []
        position = 0
        following: int | None = 0
        while True:
            match = _BETWEEN.match(buffer, position)
            position = match.end() if match else position
            if position == len(buffer):
                break
            if buffer.startswith(b"]", position):
                self._ended = True
                position += 1
                break
            if following is not None and following <= position:
                following = self._next_start(position)
            for end in self._ends(position, following):
                readable, event = decode.element(bytes(buffer[position:end]), self._findings)
                if readable:
                    if event is not None:
                        found.append(event)
                    position = end
                    break
            else:
                unfinished = not self._exhausted and len(buffer) - position < _LONGEST_PLAUSIBLE
                if unfinished and self._findings.unreadable < _DISTRUST:
                    break
                if following is None:
                    # The last element. Cut off, unless the file goes on.
                    position = len(buffer) if self._exhausted else position
                    break
                self._findings.unreadable += 1
                position = following
        return Batch(b"", found, exact=True), position

    def _ends(self, start: int, following: int | None) -> Iterator[int]:
        """Where the element at `start` may end: before the next event, or where it closes."""
        buffer = self._buffer
        if following is not None:
            yield start + len(buffer[start:following].rstrip(_SEPARATORS))
        if self._findings.unreadable >= _DISTRUST:
            return
        if buffer[start : start + 1] not in b"{[":
            scalar = _SCALAR.match(buffer, start)
            if scalar is not None:
                yield scalar.end()
            return
        depth = 0
        for token in _TOKEN.finditer(buffer, start):
            if token[0] in b"{[":
                depth += 1
                if depth > _DEEPEST:
                    return
            elif token[0] in b"}]":
                depth -= 1
                if depth == 0:
                    yield token.end()
                    return

    def _next_start(self, position: int) -> int | None:
        """Where the event behind the one at `position` seems to start."""
        if self._marker:
            found = self._buffer.find(self._marker, position)
            return found + len(self._marker) - 1 if found >= 0 else None
        starts = [
            found + len(separator) - 2
            for separator in _COMPACT
            if (found := self._buffer.find(separator, position)) >= 0
        ]
        return min(starts, default=None)

    def _read_metadata(self) -> None:
        """Decode what stands before and behind the events; note where the file is cut off."""
        while not self._exhausted and len(self._buffer) < _LONGEST:
            self._fill(len(self._buffer) + BLOCK_BYTES)
        if self._source.problem or not self._ended:
            reason = "the rest of it is zeros" if self._zeros else "it ends inside its events"
            reason = self._source.problem or reason
            self._findings.cut = (
                f"the trace is truncated ({reason}, after {self._source.bytes_out} bytes)"
            )
        if self._header is None:
            return
        events = self._header + b'"traceEvents":[]'
        metadata = decode.document(events + self._buffer) if self._ended else None
        if metadata is None and self._ended and not self._findings.cut:
            self._findings.cut = "the trace is truncated behind its events"
        if metadata is None:
            metadata = decode.document(events + b"}")
        self._findings.damaged_header |= metadata is None
        self.metadata = metadata or {}


def _elements(buffer: bytearray, end: int) -> Elements:
    """The events in buffer[:end], without what separates the last from the next."""
    while end and buffer[end - 1] in _SEPARATORS:
        end -= 1
    return Elements(buffer, end)
