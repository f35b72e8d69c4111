"""What the host did besides operators, as gpuprof saw it: rows of the table ranges in our domain.

A row's `host_event` is one of these structs as JSON text, and its name is `range_name` of it.
"""

from typing import Final

import msgspec

# The domain of rows that gpuprof itself puts into the table ranges: no ranges of the program.
DOMAIN: Final = "gpuprof"

GARBAGE_COLLECTION: Final = "garbage collection"
COMPILE: Final = "compile: "
GRAPH_CAPTURE: Final = "CUDA graph capture"
NEXT_BATCH: Final = "data loader: next batch"
LOADER_START: Final = "data loader: start"
LOADER_WORKERS: Final = "data loader: workers"


class GarbageCollection(msgspec.Struct, frozen=True, kw_only=True, tag="garbage collection"):
    """Python looked for cycles of objects: one collection."""

    generation: int
    collected: int


class Compilation(msgspec.Struct, frozen=True, kw_only=True, tag="compilation"):
    """torch.compile compiled one function, or its backward pass."""

    # As torch.compile names it; the rest of a function behind a graph break has a name of its own.
    function: str
    file: str | None = None
    line: int | None = None
    backward: bool = False
    # The function had been compiled before, and no compiled code fitted this call.
    recompiled: bool = False
    # The guard that did not hold; None where it was not recompiled, or torch does not tell.
    guard: str | None = None
    # Why there is no compiled code; "" where there is.
    failure: str = ""


class GraphCapture(msgspec.Struct, frozen=True, kw_only=True, tag="CUDA graph capture"):
    """A CUDA graph was captured: what is launched meanwhile does not run."""


class NextBatch(msgspec.Struct, frozen=True, kw_only=True, tag="next batch"):
    """The program asked a DataLoader for a batch and had it at the end.

    Times and bytes are those of the asking thread; None where the system keeps no count.
    """

    # Processes that load; 0: the asking thread loads and transforms itself.
    workers: int
    # The batch is put into page-locked memory, from which copies to the device need not wait.
    pinned: bool
    # The line of the program that asked; None where that is not in a file of its own.
    file: str | None = None
    line: int | None = None
    cpu_ns: int | None = None
    # It was ready to run and had no core.
    run_delay_ns: int | None = None
    # What it read, from wherever, and what of that came from a storage device and not from memory.
    read_bytes: int | None = None
    storage_bytes: int | None = None


class LoaderStart(msgspec.Struct, frozen=True, kw_only=True, tag="loader start"):
    """The program began to go through a DataLoader: workers are started, unless they persist."""

    workers: int
    pinned: bool


class LoaderWorkers(msgspec.Struct, frozen=True, kw_only=True, tag="loader workers"):
    """What all worker processes of one DataLoader iterator did over a time.

    None where the system keeps no count, or where a worker ended meanwhile.
    """

    workers: int
    # Batches that they made.
    batches: int | None = None
    cpu_ns: int | None = None
    run_delay_ns: int | None = None
    read_bytes: int | None = None
    storage_bytes: int | None = None


HostEvent = GarbageCollection | Compilation | GraphCapture | NextBatch | LoaderStart | LoaderWorkers

_NAMES: Final[dict[type[HostEvent], str]] = {
    GarbageCollection: GARBAGE_COLLECTION,
    GraphCapture: GRAPH_CAPTURE,
    NextBatch: NEXT_BATCH,
    LoaderStart: LOADER_START,
    LoaderWorkers: LOADER_WORKERS,
}
_DECODER: Final = msgspec.json.Decoder(HostEvent)


def range_name(event: HostEvent) -> str:
    """The name of its row in ranges."""
    if isinstance(event, Compilation):
        return COMPILE + event.function
    return _NAMES[type(event)]


def range_row(
    event: HostEvent, *, thread: int | None, start_ns: int, end_ns: int
) -> dict[str, object]:
    """`event` as a row of ranges; times are Unix epoch nanoseconds."""
    return {
        "name": range_name(event),
        "domain": DOMAIN,
        "thread": thread,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "host_event": msgspec.json.encode(event).decode(),
    }


def decode(text: str) -> HostEvent:
    """The event of a row. Raises `msgspec.MsgspecError` where `text` is none."""
    event: HostEvent = _DECODER.decode(text)
    return event
