"""A second process that decodes blocks of a large trace beside the reading one.

Decoding holds the interpreter's lock, so only a process helps. It takes blocks as they are cut,
decodes them, and gives their frames back at the end, in Arrow's format. A block that is no valid
JSON makes it give up, since where it ends is then uncertain; the trace is read again without it.

The process is started by its own command line, not by multiprocessing, which would import the
caller's script again.
"""

import gc
import io
import os
import queue
import struct
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import polars as pl

from gpuprof.collectors.kineto import decode
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.tables import Tables, add_batch

# Starting the process costs as much time as decoding about this much text.
_WORTH_BYTES: Final = 64 << 20
# Traces compress about so well.
_GZIP_RATIO: Final = 14
# Blocks on their way. More would only hold memory.
_WAITING: Final = 1
_HEADER: Final = struct.Struct("<qq")
# Stands where a table's name stands.
_FINDINGS: Final = "findings"
_START: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from gpuprof.collectors.kineto.worker import main; main()"
)


class WorkerFailed(Exception):
    """The worker met a block that it could not decode."""


def is_worth_it(path: Path) -> bool:
    """Whether a trace is large enough, and a core free, for a second process."""
    size = path.stat().st_size * (_GZIP_RATIO if path.suffix.lower() == ".gz" else 1)
    return size >= _WORTH_BYTES and _usable_cores() > 1


def _usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Worker:
    """The reading process's side."""

    def __init__(self) -> None:
        # Without site: sys.path is given, and finding it again takes time.
        command = [sys.executable, "-S", "-c", _START, *sys.path]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._blocks: queue.Queue[tuple[int, bytes] | None] = queue.Queue(_WAITING)
        self._frames: list[tuple[int, str, pl.DataFrame]] = []
        self._findings = Findings()
        # Rows come back while blocks still go out, so that little is left to wait for at the end.
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def take(self, number: int, text: bytes) -> bool:
        """Hand the block over, if the worker is not behind already."""
        try:
            self._blocks.put_nowait((number, text))
        except queue.Full:
            return False
        return True

    def collect(self, tables: Tables, findings: Findings) -> None:
        """Add what came of all blocks it took. Raises `WorkerFailed`, and then adds nothing."""
        self._blocks.put(None)
        for thread in self._threads:
            thread.join()
        if self._process.wait() != 0:
            raise WorkerFailed
        for number, name, frame in self._frames:
            tables.add_frame(number, name, frame)
        findings.add(self._findings)

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _send(self) -> None:
        assert self._process.stdin is not None
        # A worker that gave up closes the pipe; `collect` tells.
        try:
            with self._process.stdin as pipe:
                while (block := self._blocks.get()) is not None:
                    number, text = block
                    pipe.write(_HEADER.pack(number, len(text)))
                    pipe.write(text)
        except BrokenPipeError:
            while self._blocks.get() is not None:
                pass

    def _receive(self) -> None:
        assert self._process.stdout is not None
        pipe = self._process.stdout
        while len(header := pipe.read(_HEADER.size)) == _HEADER.size:
            number, size = _HEADER.unpack(header)
            name, _, content = pipe.read(size).partition(b"\n")
            if name.decode() == _FINDINGS:
                self._findings = msgspec.json.decode(content, type=Findings, dec_hook=_counter)
            else:
                frame = pl.read_ipc_stream(io.BytesIO(content))
                self._frames.append((number, name.decode(), frame))


def _counter(_: type, counts: dict[str, int]) -> Counter[str]:
    """The one type in findings that msgspec does not know."""
    return Counter(counts)


def main() -> None:
    """The worker's side: blocks on stdin, frames and findings on stdout; exits 1 to give up."""
    findings = Findings()
    gc.disable()
    while header := sys.stdin.buffer.read(_HEADER.size):
        number, size = _HEADER.unpack(header)
        batch = decode.valid(sys.stdin.buffer.read(size), findings)
        if batch is None:
            sys.exit(1)
        tables = Tables(findings)
        add_batch(tables, batch, number)
        for name, frame in tables.frames():
            body = io.BytesIO()
            frame.write_ipc_stream(body)
            _write(sys.stdout.buffer, number, name, body.getbuffer())
    _write(sys.stdout.buffer, 0, _FINDINGS, memoryview(msgspec.json.encode(findings)))


def _write(output: BinaryIO, number: int, name: str, content: memoryview) -> None:
    head = name.encode() + b"\n"
    output.write(_HEADER.pack(number, len(head) + len(content)))
    output.write(head)
    output.write(content)
    output.flush()
