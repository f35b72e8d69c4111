"""What replays of CUDA graphs ran, as an analysis holds it."""

from typing import Literal

import msgspec


class ReplayedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """All replays of one graph in the profiled steps, or of all graphs that are unknown."""

    # What tells its operators: the recorded capture of the graph, eager work of the same program,
    # or nothing.
    told_by: Literal["capture", "eager", ""]
    # The file of that, where it is another than the replays'.
    file: str | None = None
    # The range around the capture.
    label: str | None = None
    replays: int
    # Pieces of device work in all replays, and those of them that have an operator.
    pieces: int
    pieces_with_op: int
    # Their device time, and of what has an operator; of that, what could be another piece's too,
    # since it fits in several ways and all have the same operator and arguments.
    device_ns: int
    with_op_ns: int
    unsure_ns: int = 0
    # Compared by kernel name, grid and block; else by name alone, or by the order of calls.
    by_size: bool = True
