"""Captures of CUDA graphs while a profile runs: what is launched meanwhile does not run."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from gpuprof.collectors.host_events import GraphCapture, range_row
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.live.replaced import replace
from gpuprof.collectors.live.unix_clock import unix_ns


class GraphCaptures:
    """A `ProfileRecorder` of each capture that ends before the profile does."""

    subject = "captures of CUDA graphs"

    def __init__(self) -> None:
        self._undo: Callable[[], None] | None = None
        self._rows: list[dict[str, object]] = []

    def start(self) -> None:
        """See `ProfileRecorder`."""
        graphs: Any = torch.cuda.CUDAGraph
        begin, end = graphs.capture_begin, graphs.capture_end
        self._rows = []
        begun_ns: dict[int, int] = {}

        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            begun_ns[id(graph)] = unix_ns()
            return begin(graph, *args, **kwargs)

        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return end(graph, *args, **kwargs)
            finally:
                start_ns = begun_ns.pop(id(graph), None)
                if start_ns is not None and self._undo is not None:
                    self._add(start_ns)

        self._undo = replace(graphs, capture_begin=capture_begin, capture_end=capture_end)

    def _add(self, start_ns: int) -> None:
        thread = threading.get_native_id()
        self._rows.append(
            range_row(GraphCapture(), thread=thread, start_ns=start_ns, end_ns=unix_ns())
        )

    def stop(self) -> Rows:
        """See `ProfileRecorder`."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        return {"ranges": self._rows}
