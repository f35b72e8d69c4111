"""Small Kineto traces of a program that captures CUDA graphs and replays them."""

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]
# name, grid, operator, shapes
Node = tuple[str, int, str, str]


class GraphTrace:
    """Events of one process, in the order in which they are added, 10 us apart."""

    def __init__(self, *, start_us: int = 1_000, rank: int | None = None) -> None:
        self.events: list[Event] = []
        self._now = start_us
        self._correlation = 0
        self._rank = rank

    def _complete(self, cat: str, name: str, start: int, dur: int, **args: Any) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur}
        self.events.append({**event, "args": args})

    def _call(self, name: str, **args: Any) -> int:
        self._correlation += 1
        self._complete(
            "cuda_runtime", name, self._now + 2, 1, correlation=self._correlation, **args
        )
        return self._correlation

    def op(self, name: str, shapes: str) -> None:
        """An operator, around what is added next."""
        dims = json.loads(shapes)
        args = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims)}
        self._complete("cpu_op", name, self._now, 5, **args)

    def capture(self, nodes: list[Node], *, named: bool = False, label: str = "") -> None:
        """A capture with these nodes, its calls with the names of their kernels where `named`."""
        begun = self._now
        self._call("cudaStreamBeginCapture")
        self._now += 10
        for name, grid, op, shapes in nodes:
            self.op(op, shapes)
            known = {"kernel": name, "grid": [grid, 1, 1], "block": [128, 1, 1]} if named else {}
            self._call("cudaLaunchKernel", **known)
            self._now += 10
        self._call("cudaStreamEndCapture")
        self._now += 10
        if label:
            self._complete("user_annotation", label, begun, self._now - begun)

    def eager(self, nodes: list[Node]) -> None:
        """The same work, launched by itself."""
        for name, grid, op, shapes in nodes:
            self.op(op, shapes)
            self._kernel(name, grid, self._call("cudaLaunchKernel"), self._now + 3)
            self._now += 10

    def replay(self, nodes: list[tuple[str, int]], *, sized: bool = True) -> None:
        """One launch of a graph with these kernels, by name and grid, 10 us each."""
        correlation = self._call("cudaGraphLaunch")
        for place, (name, grid) in enumerate(nodes):
            self._kernel(name, grid, correlation, self._now + 10 * place, sized=sized, dur=8)
        self._now += 10 * len(nodes) + 10

    def step(self, index: int) -> "_Range":
        """A step, around what is added within it."""
        return self.range(f"ProfilerStep#{index}")

    def range(self, name: str) -> "_Range":
        """A range, around what is added within it."""
        return _Range(self, name)

    def _kernel(
        self,
        name: str,
        grid: int,
        correlation: int,
        start: int,
        *,
        sized: bool = True,
        dur: int = 5,
    ) -> None:
        sizes = {"grid": [grid, 1, 1], "block": [128, 1, 1]} if sized else {}
        place = {"device": 0, "context": 1, "stream": 7, "correlation": correlation}
        self._complete("kernel", name, start, dur, **place, **sizes)

    def write(self, path: Path) -> Path:
        """The trace as a file."""
        trace: dict[str, Any] = {"traceEvents": self.events, "record_shapes": 1}
        if self._rank is not None:
            trace["distributedInfo"] = {"rank": self._rank, "world_size": 2}
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
        return path


class _Range:
    def __init__(self, trace: GraphTrace, name: str) -> None:
        self._trace, self._name = trace, name

    def __enter__(self) -> None:
        self._begun = self._trace._now
        self._trace._now += 5

    def __exit__(self, *error: object) -> None:
        now = self._trace._now
        self._trace._complete("user_annotation", self._name, self._begun, now - self._begun)
        self._trace._now += 10
