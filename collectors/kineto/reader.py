"""Reads a PyTorch profiler trace into a capture."""

import codecs
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl
from msgspec import structs

from gpuprof._version import __version__
from gpuprof.collectors import freed_memory, garbage_collector
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.source import ByteSource
from gpuprof.collectors.joining.captures import joined
from gpuprof.collectors.joining.graph_partners import GRAPH_LAUNCH
from gpuprof.collectors.joining.lost_launches import (
    device_launches,
    lost_count,
    lost_sentence,
    queued_sentence,
    still_queued,
    unnamed,
)
from gpuprof.collectors.kineto import metadata
from gpuprof.collectors.kineto.assemble import STEPS_FOUND_BY, assemble, with_rank
from gpuprof.collectors.kineto.beyond_recording import beyond_recording
from gpuprof.collectors.kineto.blocks import Blocks
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.processes import by_process
from gpuprof.collectors.kineto.tables import Tables, add_batch
from gpuprof.collectors.kineto.tensor_lists import with_tensor_lists
from gpuprof.collectors.kineto.threads import BlockReaders, NotDecoded, threads_for
from gpuprof.collectors.manifest import Device, Manifest, ProcessInfo
from gpuprof.collectors.query_thread import on_query_thread
from gpuprof.collectors.recorded_collectives import RecordedCollective, read_collectives
from gpuprof.collectors.recorded_lists import beside

# A time before 1973 is no time of a recording but counts from an unknown start.
_EPOCH_AFTER_NS: Final = 100_000_000_000_000_000
NO_DEVICE_EVENT: Final = (
    "No device event in the trace that is read: CUPTI recorded none (ProfilerActivity.CUDA), they "
    "are of another accelerator, or they are in a missing part of the file."
)


# Calls of Unified Runtime and Level Zero (pytorch/kineto, libkineto/src/plugin/xpupti).
_OF_INTEL: Final = r"^(?:ur|ze)[A-Z]"
_OF_APPLE: Final = r"^aten::_?(?:mps_|lstm_mps)"
_UNRECORDED_APPLE_GPU: Final = (
    "An Apple GPU (MPS) did the work. torch's profiler records none of it: Instruments does, with "
    "torch.mps.profiler's signposts."
)
_UNNAMED_INTEL_GPU: Final = (
    "An Intel GPU (XPU) did the work. torch's trace does not name it, so that no peak is known."
)


def recognises(start: bytes) -> bool:
    """Whether a file that begins with `start` can be such a trace: a JSON object or array."""
    return start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[")


def read(
    path: Path, *, advise: bool = True, recorded: bool = False, device_elsewhere: bool = False
) -> Capture:
    """Read one trace file, plain or gzip, into a capture.

    The rank is what the trace's distributedInfo says, else 0. Several processes that were merged
    into the trace are ranks 0, 1, ... in the order of their ids. Operators have their parents,
    kernels not yet their operators (see `gpuprof.roofline.work.attribution`). What was repaired
    or is missing stands in the warnings of the capture's process.

    `advise` adds to the warnings how to record GPU activity and steps that the trace lacks.
    With `recorded` gpuprof recorded the trace, and what it leaves out is read from beside it: lists
    of tensors, and what torch's flight recorder has of collectives. `device_elsewhere`: the program
    used a GPU, whose work another tool recorded.
    Raises `CaptureError` where the file cannot be read, holds no events, is of another tool
    (`foreign.toml`), or holds several processes whose kernels nothing tells apart.
    """
    if not path.is_file():
        raise CaptureError(path, "no such file" if not path.exists() else "not a file")
    with garbage_collector.paused():
        metadata_fields, tables, findings = _read(path)
    if (foreign := findings.foreign) is not None:
        raise CaptureError(path, foreign.name, remedy=foreign.remedy)
    if tables.is_empty():
        raise CaptureError(
            path,
            "no events: no operator, kernel, launch or range",
            expected="a trace of at least one step",
            remarks=findings.sentences(),
        )
    raw = tables.all()
    # What blocks held is free now, and as much is taken while the tables are put in order.
    freed_memory.give_back()
    collectives: tuple[RecordedCollective, ...] = ()
    if recorded:
        if beside(path).is_file():
            raw["ops"] = with_tensor_lists(raw["ops"], beside(path))
        collectives = read_collectives(path)
    findings.device_elsewhere = device_elsewhere
    capture = _capture(path, metadata_fields, raw, findings, collectives, advise=advise)
    freed_memory.give_back()
    return capture


def _read(path: Path) -> tuple[dict[str, object], Tables, Findings]:
    """The metadata, events and findings of a trace."""
    try:
        return _read_by(path, threads_for(path))
    except NotDecoded:
        return _read_by(path, 0)


def _read_by(path: Path, threads: int) -> tuple[dict[str, object], Tables, Findings]:
    findings = Findings()
    tables = Tables(findings)
    with BlockReaders(threads) as readers:
        blocks = Blocks(ByteSource(path), findings, readers.take, readers.buffers)
        for number, batch in blocks:
            add_batch(tables, batch, number)
        readers.collect(tables, findings)
    return blocks.metadata, tables, findings


@on_query_thread
def _capture(
    path: Path,
    fields: Mapping[str, object],
    raw: dict[str, pl.DataFrame],
    findings: Findings,
    recorded: Sequence[RecordedCollective],
    *,
    advise: bool,
) -> Capture:
    parts = by_process(path, raw)
    if len(parts) == 1:
        ((process, rows),) = parts
        return _rank(
            path, fields, process, rows, findings, metadata.rank(fields), recorded, advise=advise
        )
    captures = [
        _rank(path, fields, process, rows, findings, (rank, len(parts)), advise=advise)
        for rank, (process, rows) in enumerate(parts)
    ]
    ids = ", ".join(str(process) for process, _ in parts)
    merged = f"processes {ids} are merged in this trace: they are ranks in this order"
    return joined(captures, [merged])


def _rank(
    path: Path,
    fields: Mapping[str, object],
    process: int | None,
    raw: dict[str, pl.DataFrame],
    findings: Findings,
    stated: tuple[int, int] | None,
    recorded: Sequence[RecordedCollective] = (),
    *,
    advise: bool,
) -> Capture:
    """One process of the trace; `stated` are its rank and the number of ranks, where known.

    What is large is taken out of `raw`.
    """
    rank, world_size = stated or (0, 1)
    base_ns = metadata.base_ns(fields)
    findings.unusable_base_time = base_ns is None and "baseTimeNanoseconds" in fields
    beyond = beyond_recording(raw)
    tables, on_cpu = assemble(raw, fields, findings, base_ns, recorded)
    # Columns of numbers become narrower: not beside those that they were.
    frames = {name: with_rank(name, tables.pop(name), rank) for name in tuple(tables)}
    start_ns = _earliest(frames)
    epoch = start_ns > _EPOCH_AFTER_NS
    fingerprint = metadata.fingerprint(fields)
    if on_cpu:
        # The trace lists the GPUs of the machine, none of which did this work.
        fingerprint = structs.replace(
            fingerprint, devices=(Device(index=0, kind="cpu", name="CPU"),)
        )
    # An operator's list of shapes holds a list for each input, empty where that is a scalar.
    shapes = bool(frames["ops"]["input_dims"].str.contains(r"\[\s*\[").any())
    missing = _missing(frames, on_cpu=on_cpu, shapes=shapes, advise=advise)
    info = ProcessInfo(
        rank=rank,
        rank_from="order" if stated is None else "content",
        world_size=world_size,
        process=process,
        fingerprint=fingerprint,
        process_groups=metadata.process_groups(fields),
        device=_device_position(fingerprint.devices, frames["kernels"]),
        steps_found_by=STEPS_FOUND_BY if frames["steps"].height else None,
        shapes_recorded=shapes,
        warnings=(*findings.sentences(), *beyond, *missing),
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
        missing.append(NO_DEVICE_EVENT)
        if frames["ops"]["name"].str.contains(_OF_APPLE).any():
            missing.append(_UNRECORDED_APPLE_GPU)
    if frames["kernels"].height and frames["launches"]["name"].str.contains(_OF_INTEL).any():
        missing.append(_UNNAMED_INTEL_GPU)
    launches = device_launches(frames["launches"])
    without_work = unnamed(launches, frames["kernels"])
    # In a step they are a part of it, whose figures are then of too little.
    queued = still_queued(without_work, launches).height if frames["steps"].is_empty() else 0
    if queued:
        missing.append(f"{queued_sentence(queued)}.".capitalize())
    lost = max(0, lost_count(without_work, frames["kernels"]) - queued)
    if lost:
        missing.append(f"{lost_sentence(lost, launches.height)}.")
    if frames["ops"].is_empty():
        missing += _without_operators(frames)
    elif not shapes:
        missing.append(
            "No operator shapes in the trace: what operators compute and move is unknown. Record "
            "with record_shapes=True."
        )
    if frames["steps"].is_empty() and advise:
        missing.append("No steps in the trace: call prof.step() after each step while recording.")
    return missing


def _without_operators(frames: Mapping[str, pl.DataFrame]) -> list[str]:
    """Why no operator is there. What graphs replay is said where their operators are looked for."""
    calls = frames["launches"].join(frames["kernels"], on=["process", "correlation"], how="semi")
    if calls.height and calls["name"].str.contains(GRAPH_LAUNCH).all():
        return []
    if frames["ranges"].height:
        # Ranges of record_function are there only where the host was recorded.
        return ["No operators in the trace: what launched the kernels is no operator of torch."]
    return [
        "No operators in the trace: record with ProfilerActivity.CPU to see what launched the "
        "kernels."
    ]
