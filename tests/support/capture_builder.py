"""A way to write small captures down."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device, Fingerprint, Manifest, ProcessInfo

H100 = Device(
    index=0,
    kind="cuda",
    name="NVIDIA H100 80GB HBM3",
    total_memory_bytes=85_029_158_912,
    multiprocessors=132,
)


class CaptureBuilder:
    """Rows of one process on one H100; times in ns."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in schema.TABLES}

    def op(self, name: str, start: int, end: int, *, thread: int = 1, **columns: Any) -> int:
        """One operator call; `dims` and `types` as the profiler's JSON. Returns its op_id."""
        op_id = len(self.rows["ops"])
        for short, column in (("dims", "input_dims"), ("types", "input_types")):
            if short in columns:
                columns[column] = columns.pop(short)
        row = {"op_id": op_id, "name": name, "thread": thread, "start_ns": start, "end_ns": end}
        self.rows["ops"].append({**row, **columns})
        return op_id

    def mm(self, start: int, end: int, m: int = 64, k: int = 32, n: int = 16, **more: Any) -> int:
        """One bf16 aten::mm of m x k and k x n: 2 m k n FLOPs, 2 (m k + k n + m n) bytes."""
        types = '["c10::BFloat16", "c10::BFloat16"]'
        return self.op(
            "aten::mm", start, end, dims=f"[[{m}, {k}], [{k}, {n}]]", types=types, **more
        )

    def convolution(self, start: int, end: int, *, size: int = 56) -> int:
        """One bf16 convolution of 64 images of 512 channels and `size` squared, 512 x 3 x 3."""
        empty = ", []" * 7
        return self.op(
            "aten::cudnn_convolution",
            start,
            end,
            dims=f"[[64, 512, {size}, {size}], [512, 512, 3, 3]{empty}]",
            types='["c10::BFloat16", "c10::BFloat16", "", "", "", "", "", "", ""]',
            concrete_inputs='["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"]',
        )

    def kernel(
        self, launched: int, start: int, end: int, name: str = "k", *, thread: int = 1, **more: Any
    ) -> None:
        """One piece of device work and its launch."""
        correlation = len(self.rows["launches"]) + 1
        times = {"start_ns": launched, "end_ns": launched + 1}
        self.rows["launches"].append(
            {"name": "cudaLaunchKernel", "thread": thread, "correlation": correlation, **times}
        )
        row = {"name": name, "kind": "kernel", "device": 0, "stream": 7, "correlation": correlation}
        self.rows["kernels"].append({**row, "start_ns": start, "end_ns": end, **more})

    def step(self, phase: str, start: int, end: int, **columns: Any) -> None:
        """One step, its host time being its length unless given."""
        index = len(self.rows["steps"])
        row = {"index": index, "phase": phase, "start_ns": start, "end_ns": end}
        self.rows["steps"].append({**row, "host_ns": end - start, **columns})

    def range(self, name: str, start: int, end: int, *, thread: int = 1, **columns: Any) -> None:
        """One user range."""
        row = {"name": name, "domain": "region", "thread": thread, "start_ns": start, "end_ns": end}
        self.rows["ranges"].append({**row, **columns})

    def build(
        self,
        device: Device | None = H100,
        *,
        facts: Mapping[str, Any] | None = None,
        **process: Any,
    ) -> Capture:
        """The capture of these rows; `facts` are others of its fingerprint than the device."""
        devices = () if device is None else (device,)
        info = ProcessInfo(fingerprint=Fingerprint(devices=devices, **(facts or {})), **process)
        manifest = Manifest(tool_version="0", source="test", title="t", created_ns=0)
        frames = {}
        for name, rows in self.rows.items():
            complete = [{"rank": 0, "process": 1, **row} for row in rows]
            frame = pl.DataFrame(complete, infer_schema_length=None)
            frames[name] = schema.conform(name, frame) if rows else schema.empty(name)
        return Capture(manifest, (info,), **frames)
