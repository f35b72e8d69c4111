"""Reads a PyTorch profiler trace into a capture."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import polars as pl
from msgspec import structs

from gpuprof._version import __version__
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.kineto import metadata
from gpuprof.collectors.kineto.assemble import STEPS_FOUND_BY, assemble, with_rank
from gpuprof.collectors.kineto.blocks import Blocks
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.source import Source
from gpuprof.collectors.kineto.tables import Tables, add_batch
from gpuprof.collectors.kineto.worker import Worker, WorkerFailed, is_worth_it
from gpuprof.collectors.manifest import Device, Manifest, ProcessInfo

# A time before 1973 is no time of a recording but counts from an unknown start.
_EPOCH_AFTER_NS: Final = 100_000_000_000_000_000


def read(path: Path, *, advise: bool = True) -> Capture:
    """Read one trace file, plain or gzip, into a capture of one rank.

    The rank is what the trace's distributedInfo says, else 0. Operators have their parents,
    kernels not yet their operators (see `gpuprof.roofline.work.attribution`). What was repaired
    or is missing stands in the warnings of the capture's process.

    `advise` adds to the warnings how to record GPU activity and steps that the trace lacks.
    Raises `CaptureError` where the file cannot be read or holds no events.
    """
    if not path.is_file():
        raise CaptureError(path, "no such file" if not path.exists() else "not a file")
    with _collector_paused():
        metadata_fields, tables, findings = _read_large(path) if is_worth_it(path) else _read(path)
    if tables.is_empty():
        raise CaptureError(
            path,
            " ".join(("no events: no operator, kernel, launch or range", *findings.sentences())),
            expected="a trace of at least one step",
        )
    return _capture(path, metadata_fields, tables, findings, advise=advise)


def _read(path: Path) -> tuple[dict[str, object], Tables, Findings]:
    """The metadata, events and findings of a trace."""
    findings = Findings()
    blocks = Blocks(Source(path), findings)
    tables = Tables(findings)
    for number, batch in blocks:
        add_batch(tables, batch, number)
    return blocks.metadata, tables, findings


def _read_large(path: Path) -> tuple[dict[str, object], Tables, Findings]:
    """As `_read`, with a second process; what that cannot decode is left to `_read`."""
    worker = Worker()
    try:
        findings = Findings()
        blocks = Blocks(Source(path), findings, worker.take)
        tables = Tables(findings)
        for number, batch in blocks:
            add_batch(tables, batch, number)
        worker.collect(tables, findings)
        return blocks.metadata, tables, findings
    except (WorkerFailed, OSError):
        return _read(path)
    finally:
        worker.close()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection: millions of objects are made, none in a cycle. Saves a fifth."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _capture(
    path: Path,
    fields: Mapping[str, object],
    tables: Tables,
    findings: Findings,
    *,
    advise: bool,
) -> Capture:
    rank, world_size = metadata.rank(fields)
    assembled = assemble(tables, fields, findings)
    frames = {name: with_rank(name, frame, rank) for name, frame in assembled.tables.items()}
    start_ns = _earliest(frames)
    epoch = start_ns > _EPOCH_AFTER_NS
    fingerprint = metadata.fingerprint(fields)
    if assembled.on_cpu:
        # The trace lists the GPUs of the machine, none of which did this work.
        fingerprint = structs.replace(
            fingerprint, devices=(Device(index=0, kind="cpu", name="CPU"),)
        )
    shapes = bool(frames["ops"]["input_dims"].str.contains(r"\[\d").any())
    missing = _missing(frames, on_cpu=assembled.on_cpu, shapes=shapes, advise=advise)
    info = ProcessInfo(
        rank=rank,
        world_size=world_size,
        process=assembled.process,
        fingerprint=fingerprint,
        device=_device_position(fingerprint.devices, frames["kernels"]),
        steps_found_by=STEPS_FOUND_BY if frames["steps"].height else None,
        shapes_recorded=shapes,
        warnings=(*findings.sentences(), *missing),
    )
    manifest = Manifest(
        tool_version=__version__,
        source="kineto",
        title=path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace"),
        created_ns=start_ns if epoch else path.stat().st_mtime_ns,
        clock="unix epoch" if epoch else "unknown start",
        ranks=(rank,),
    )
    return Capture(manifest, (info,), **frames)


def _device_position(devices: tuple[Device, ...], kernels: pl.DataFrame) -> int:
    """The place in `devices` of the one that most kernels ran on."""
    for index in kernels["device"].drop_nulls().mode().sort():
        for position, device in enumerate(devices):
            if device.index == index:
                return position
    return 0


def _earliest(frames: Mapping[str, pl.DataFrame]) -> int:
    starts = (frame["start_ns"].min() for frame in frames.values() if "start_ns" in frame.columns)
    return min((start for start in starts if isinstance(start, int)), default=0)


def _missing(
    frames: Mapping[str, pl.DataFrame], *, on_cpu: bool, shapes: bool, advise: bool
) -> list[str]:
    """What the trace does not hold, and how to record it."""
    missing = []
    if on_cpu and advise:
        missing.append(
            "No GPU activity in the trace: its leaf operators count as the work. If a GPU was "
            "used, record with ProfilerActivity.CUDA where CUPTI works."
        )
    elif not on_cpu and frames["kernels"].is_empty():
        missing.append(
            "No device event in the trace that is read: CUPTI recorded none (ProfilerActivity."
            "CUDA), they are of another accelerator, or they are in a missing part of the file."
        )
    if frames["ops"].is_empty():
        missing.append(
            "No operators in the trace: record with ProfilerActivity.CPU to see what launched "
            "the kernels."
        )
    elif not shapes:
        missing.append(
            "No operator shapes in the trace: FLOPs and bytes are unknown. Record with "
            "record_shapes=True."
        )
    if frames["steps"].is_empty() and advise:
        missing.append("No steps in the trace: call prof.step() after each step while recording.")
    return missing
