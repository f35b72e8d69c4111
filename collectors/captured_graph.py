"""A CUDA graph as the driver tells of it while it is captured, as plain data."""

from dataclasses import dataclass

Dimensions = tuple[int, int, int]


@dataclass(frozen=True)
class GraphNode:
    """One kernel, memcpy or memset of a graph."""

    kind: str
    # Of a kernel, as CUPTI writes it; None where the driver does not tell.
    name: str | None = None
    grid: Dimensions | None = None
    block: Dimensions | None = None


@dataclass(frozen=True)
class CapturedGraph:
    """The nodes of one graph in the order in which they were made, and when it was captured."""

    start_ns: int
    end_ns: int
    nodes: tuple[GraphNode, ...]
