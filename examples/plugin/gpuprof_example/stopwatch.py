"""Reads the log of an Example X1: one line a step and one a call, times in microseconds."""

import gzip
import json
from pathlib import Path

import polars as pl

from gpuprof import Capture, CaptureError
from gpuprof.collectors import schema
from gpuprof.collectors.manifest import Device, Fingerprint, Manifest, ProcessInfo
from gpuprof.collectors.opening.formats import TraceFormat

_HEAD = "stopwatch 1"


def recognises(start: bytes) -> bool:
    """Whether a file that begins with `start` is such a log."""
    return start.startswith(_HEAD.encode())


def read(path: Path) -> Capture:
    """Read one log, plain or gzip. Raises `CaptureError` with the line that is wrong."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    name, steps, calls = "", [], []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        kind, *fields = line.split(" ", 5) if line.strip() else ("#",)
        try:
            if kind == "device":
                name = " ".join(fields)
            elif kind == "step":
                step = _times(fields)
                length_ns = step["end_ns"] - step["start_ns"]
                steps.append({**step, "phase": "profiled", "host_ns": length_ns})
            elif kind == "call":
                calls.append({**_times(fields), **_call(*fields[2:])})
            elif kind != "#":
                raise ValueError(f"no line begins with {kind!r}")
        except (ValueError, TypeError) as error:
            raise CaptureError(
                path, str(error), place=f"line {number}", expected="device, step or call"
            ) from error
    device = Device(index=0, kind="cuda", name=name)
    return Capture(
        Manifest(
            tool_version="1.0",
            source="stopwatch",
            title=path.name.removesuffix(".gz").removesuffix(".stopwatch"),
            created_ns=path.stat().st_mtime_ns,
            clock="from the start of the log",
        ),
        (
            ProcessInfo(
                fingerprint=Fingerprint(devices=(device,)),
                steps_found_by="steps of the log",
                shapes_recorded=True,
            ),
        ),
        steps=_table("steps", steps),
        # Each call is one operator, which launched one piece of device work.
        ops=_table("ops", [{**call, "thread": 1} for call in calls]),
        launches=_table("launches", [{**call, "thread": 1} for call in calls]),
        kernels=_table("kernels", [{**call, "kind": "kernel", "device": 0} for call in calls]),
    )


def _times(fields: list[str]) -> dict[str, int]:
    begin_us, end_us = map(float, fields[:2])
    return {"start_ns": round(begin_us * 1e3), "end_ns": round(end_us * 1e3)}


def _call(operator: str, shapes: str, element: str) -> dict[str, str]:
    """The columns that describe a call; shapes and types are JSON, as torch's profiler has them."""
    sizes = [[int(size) for size in shape.split("x")] for shape in shapes.split(",")]
    return {
        "name": operator,
        "input_dims": json.dumps(sizes),
        "input_types": json.dumps([element] * len(sizes)),
    }


def _table(name: str, rows: list[dict[str, object]]) -> pl.DataFrame:
    """The rows of one table, with its columns and types. Ids count from 1."""
    if not rows:
        return schema.empty(name)
    numbered = [
        {"rank": 0, "process": 1, "index": i, "op_id": i, "correlation": i + 1, **row}
        for i, row in enumerate(rows)
    ]
    return schema.conform(name, pl.DataFrame(numbered, infer_schema_length=None))


FORMAT = TraceFormat("a stopwatch log of an Example X1", (".stopwatch",), recognises, read)
