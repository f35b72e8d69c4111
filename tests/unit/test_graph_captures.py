"""Captures of CUDA graphs, with a class in place of torch's where there is no GPU."""

from typing import Any

import pytest
import torch

from gpuprof.collectors.live.graph_captures import GraphCaptures


def test_a_capture_is_a_row_from_its_begin_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    class Graph:
        def capture_begin(self, pool: object = None) -> None:
            calls.append(pool)

        def capture_end(self) -> None:
            calls.append("end")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    graph: Any = Graph()
    graph.capture_begin()
    recorder = GraphCaptures()
    recorder.start()
    # Its begin was before the profile.
    graph.capture_end()
    graph.capture_begin(pool="mine")
    graph.capture_end()
    (row,) = recorder.stop()["ranges"]
    assert (row["name"], row["domain"]) == ("CUDA graph capture", "gpuprof")
    assert int(str(row["start_ns"])) <= int(str(row["end_ns"]))
    assert calls == [None, "end", "mine", "end"]
    graph.capture_begin()
    graph.capture_end()
    assert recorder.stop() == {"ranges": [row]}
    assert Graph.capture_begin.__qualname__.endswith("Graph.capture_begin")
