"""What `gpuprof run` and the process that stores for it say to each other over a socket."""

import pickle
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.rank_marks import RankMarks
from gpuprof.profiler.run.recorded import Recorded

# A program may let SIGPIPE end it.
_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)
_LENGTH: Final = struct.Struct("<q")


@dataclass(frozen=True)
class WatchRank:
    """This rank begins; say so, and how `process` ended if it stores nothing. No answer."""

    marks: RankMarks
    process: int


@dataclass(frozen=True)
class ShowLine:
    """Show on stderr, which is a terminal, what `process` does by the memory `state`. No answer."""

    # An open file of the process that stores: see `LiveState`.
    state: int
    process: int
    # How many steps a phase takes, where that is settled.
    planned_steps: Mapping[str, int]


@dataclass(frozen=True)
class StoreEarly:
    """Store what is known when the profiled steps are done. The answer is `StoredEarly`."""

    recorded: Recorded


@dataclass(frozen=True)
class SkipEarly:
    """The whole run comes next: what is not stored early by now need not be. No answer."""


@dataclass(frozen=True)
class StoredEarly:
    """The output as it is then, or why nothing was stored."""

    output: CaptureOutput
    problem: str = ""


@dataclass(frozen=True)
class StoreFinal:
    """Store the whole run and tell about it on stderr. The answer is `Done`."""

    recorded: Recorded
    quiet: bool


@dataclass(frozen=True)
class StoreAside:
    """Store a capture of its own while the program goes on. The answer is `StoredAside`."""

    recorded: Recorded


@dataclass(frozen=True)
class StoredAside:
    """The output as it is then, or why nothing was stored."""

    output: CaptureOutput
    problem: str = ""


@dataclass(frozen=True)
class Hurry:
    """Whoever waits for other ranks should not wait any longer. There is no answer."""


@dataclass(frozen=True)
class Farewell:
    """Nothing more is wanted. Without it the program has been killed. There is no answer."""


@dataclass(frozen=True)
class Done:
    """Stored, or told why not."""

    lost: bool


def send(connection: socket.socket, message: object) -> None:
    """Raises `OSError` where nobody listens any more."""
    content = pickle.dumps(message)
    view = memoryview(_LENGTH.pack(len(content)) + content)
    while view:
        view = view[connection.send(view, _NO_SIGNAL) :]


def receive(connection: socket.socket) -> Any:
    """The next message; None where there will be none."""
    header = _read(connection, _LENGTH.size)
    if header is None:
        return None
    content = _read(connection, _LENGTH.unpack(header)[0])
    return None if content is None else pickle.loads(content)


def _read(connection: socket.socket, size: int) -> bytes | None:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
