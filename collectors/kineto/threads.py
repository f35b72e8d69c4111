"""Blocks of a trace decoded by as many threads as there are cores, where that needs no Python.

The compiled decoder releases the interpreter's lock, so that threads help. A block that is no valid
JSON makes them give up, since where it ends is then uncertain; the trace is read again by one.
"""

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final

from gpuprof.collectors.kineto import blocks, columns, decode
from gpuprof.collectors.kineto.buffers import Buffers, Elements
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.tables import Tables, add_batch
from gpuprof.collectors.native import compiled

# Below, threads are not worth their start.
_WORTH_BYTES: Final = 8 << 20
# Traces compress about so well.
_GZIP_RATIO: Final = 14
# Each holds a block or two; beyond so many, cutting the file into blocks takes longer.
_MOST_THREADS: Final = 16


class NotDecoded(Exception):
    """A thread met a block that it could not decode."""


def threads_for(path: Path) -> int:
    """How many threads beside the reading one are worth it for this trace."""
    size = path.stat().st_size * (_GZIP_RATIO if path.suffix.lower() == ".gz" else 1)
    if compiled is None or size < _WORTH_BYTES:
        return 0
    return min(_usable_cores() - 1, _MOST_THREADS)


def _usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class BlockReaders:
    """Reads blocks for the reading thread, in it and in as many `threads`."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads) if threads else None
        # One block a thread is decoded, and one waits for it.
        self._room = threading.Semaphore(2 * threads)
        self._handed: list[Future[tuple[Tables, Findings]]] = []
        self._findings = Findings()
        self._read: list[Tables] = []
        self._texts = columns.file_texts()
        self.buffers = Buffers(blocks.BLOCK_BYTES)

    def __enter__(self) -> "BlockReaders":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def take(self, number: int, elements: Elements, *, now: bool) -> bool:
        """Read the block, `now` or in another thread if one is free; False if that is impossible.

        It never is for a block that another thread takes, which `collect` then tells.
        """
        if not now and self._pool is not None and self._room.acquire(blocking=False):
            self._handed.append(self._pool.submit(self._decode, number, elements))
            return True
        tables = columns.read(elements, number, self._findings, self._texts)
        if tables is None:
            return False
        self._read.append(tables)
        self.buffers.give_back(elements.buffer)
        return True

    def collect(self, tables: Tables, findings: Findings) -> None:
        """Add what came of all blocks that were taken. Raises `NotDecoded`."""
        for future in self._handed:
            read, found = future.result()
            self._read.append(read)
            self._findings.add(found)
        for each in self._read:
            tables.add_all(each)
        findings.add(self._findings)

    def _decode(self, number: int, elements: Elements) -> tuple[Tables, Findings]:
        findings = Findings()
        try:
            tables = columns.read(elements, number, findings, self._texts)
            if tables is None:
                tables = Tables(findings)
                batch = decode.valid(elements.array(), findings)
                if batch is None:
                    raise NotDecoded
                add_batch(tables, batch, number)
            self.buffers.give_back(elements.buffer)
        finally:
            self._room.release()
        return tables, findings
