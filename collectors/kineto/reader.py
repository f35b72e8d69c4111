"""Reads a PyTorch profiler trace into a capture.

What counts as what: kernel, gpu_memcpy and gpu_memset events are device work; gpu_user_annotation,
cuda_sync and cuda_event lie on device rows but are not. A trace without device work is a CPU run,
whose leaf operators become the rows of `kernels`. ProfilerStep#N annotations are the steps; all
other user annotations are ranges.
"""

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from msgspec import structs

from gpuprof._version import __version__
from gpuprof.collectors import cpu_leaf_ops, schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.kineto import decode, events, kernel_names, metadata
from gpuprof.collectors.kineto.blocks import Blocks
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.source import Source
from gpuprof.collectors.kineto.tables import InexactTimes, Tables
from gpuprof.collectors.manifest import Device, Manifest, ProcessInfo
from gpuprof.collectors.nesting import NONE, Integers, enclosing, parents, thread_codes

STEPS_FOUND_BY: Final = "ProfilerStep annotations"
_STEP: Final = r"^ProfilerStep#(\d{1,9})$"
# A time before 1973 is no time of a recording but counts from an unknown start.
_EPOCH_AFTER_NS: Final = 100_000_000_000_000_000
_CPU_DEVICE_TYPE: Final = 0
# Categories of devices whose events are not read.
_ACCELERATOR: Final = re.compile("mtia_|privateuse1_|xpu_|hpu_", re.IGNORECASE)


def read(path: Path) -> Capture:
    """Read one trace file, plain or gzip, into a capture of one rank.

    The rank is what the trace's distributedInfo says, else 0. Operators have their parents,
    kernels not yet their operators (`gpuprof.roofline.attribution.attribute`). What was repaired
    or is missing stands in the warnings of the capture's process.

    Raises `CaptureError` where the file cannot be read or holds no events.
    """
    if not path.is_file():
        raise CaptureError(path, "no such file" if not path.exists() else "not a file")
    findings = Findings()
    blocks = Blocks(Source(path), findings)
    tables = Tables(findings)
    with _collector_paused():
        for batch in blocks:
            _add(batch, tables, findings)
    return _capture(path, blocks.metadata, tables, findings)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection: millions of tuples are made, none in a cycle (a fifth of the time)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _add(batch: decode.Batch, tables: Tables, findings: Findings) -> None:
    try:
        tables.add(batch)
    except InexactTimes:
        tables.add(decode.exactly(batch, findings))


def _capture(path: Path, fields: dict[str, object], tables: Tables, findings: Findings) -> Capture:
    raw_ops, raw_ranges = tables.table("ops"), tables.table("ranges")
    launches, kernels = tables.table("launches"), tables.table("kernels")
    if not any(frame.height for frame in (raw_ops, raw_ranges, launches, kernels)):
        raise CaptureError(
            path,
            " ".join(("no events: no operator, kernel, launch or range", *findings.sentences())),
            expected="a trace of at least one step",
        )
    process = _main_process(launches, raw_ops, raw_ranges)
    is_step = pl.col("name").str.contains(_STEP)
    # In 2020 and 2021 steps and ranges were written as operators.
    annotations = pl.concat([raw_ranges, raw_ops.select(raw_ranges.columns)])
    ops = _ops(raw_ops.filter(~is_step))
    on_cpu = (
        kernels.is_empty()
        and not launches["name"].str.contains("(?i)launch").any()
        and not any(map(_ACCELERATOR.match, findings.unread_categories))
        # Device events may have stood in the part that is missing.
        and (not findings.incomplete or fields.get("deviceProperties") == [])
    )
    if on_cpu:
        kernels = cpu_leaf_ops.kernels(ops)
    else:
        kernels = kernel_names.classify(kernels, findings).with_columns(
            process=pl.lit(process, pl.Int64)
        )
    base = metadata.base_ns(fields)
    findings.unusable_base_time = base is None and "baseTimeNanoseconds" in fields
    rank, world_size = metadata.rank(fields)
    frames = {
        "kernels": kernels.sort("start_ns", maintain_order=True),
        "ops": _mark_recompute(ops, tables.table("frames"), bool(fields.get("with_stack"))),
        "launches": launches.sort("start_ns", maintain_order=True),
        "ranges": raw_ranges.filter(~is_step)
        .sort("start_ns", maintain_order=True)
        .with_columns(domain=pl.lit("record_function")),
        "steps": _steps(annotations.filter(is_step)),
        "allocations": _allocations(tables.table("allocations"), ops),
    }
    finished = {name: _finish(name, frame, rank, base or 0) for name, frame in frames.items()}
    start_ns = _earliest(finished)
    epoch = start_ns > _EPOCH_AFTER_NS
    fingerprint = metadata.fingerprint(fields)
    if on_cpu:
        # The trace lists the GPUs of the machine, none of which did this work.
        fingerprint = structs.replace(
            fingerprint, devices=(Device(index=0, kind="cpu", name="CPU"),)
        )
    shapes = bool(ops["input_dims"].str.contains(r"\[\d").any())
    info = ProcessInfo(
        rank=rank,
        world_size=world_size,
        process=process,
        fingerprint=fingerprint,
        device=_device_position(fingerprint.devices, finished["kernels"]),
        steps_found_by=STEPS_FOUND_BY if frames["steps"].height else None,
        shapes_recorded=shapes,
        warnings=(*findings.sentences(), *_missing(finished, on_cpu, shapes)),
    )
    manifest = Manifest(
        tool_version=__version__,
        source="kineto",
        title=path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace"),
        created_ns=start_ns if epoch else path.stat().st_mtime_ns,
        clock="unix epoch" if epoch else "unknown start",
        ranks=(rank,),
    )
    return Capture(manifest, (info,), **finished)


def _ops(raw: pl.DataFrame) -> pl.DataFrame:
    """Operators in order, with ids and parents."""
    ops = raw.sort(
        "start_ns", "end_ns", "external_id", descending=[False, True, False], maintain_order=True
    )
    (threads,) = thread_codes(ops)
    parent = parents(threads, ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    return ops.with_columns(op_id=pl.Series(np.arange(ops.height)), parent_id=_links(parent))


def _links(positions: Integers) -> pl.Series:
    """Positions of rows, null where there is none."""
    links: pl.Series = pl.Series(positions).replace(NONE, None)
    return links


def _steps(annotations: pl.DataFrame) -> pl.DataFrame:
    return (
        annotations.sort("start_ns")
        .with_columns(
            index=pl.col("name").str.extract(_STEP).cast(pl.Int32),
            host_ns=pl.col("end_ns") - pl.col("start_ns"),
            phase=pl.lit("profiled"),
            found_by=pl.lit(STEPS_FOUND_BY),
        )
        # The same annotation may have been written as a range and as an operator.
        .unique("index", keep="first", maintain_order=True)
    )


def _mark_recompute(ops: pl.DataFrame, frames: pl.DataFrame, with_stack: bool) -> pl.DataFrame:
    """Fill `recompute`: the op ran under activation checkpointing's second forward.

    Only Python stacks tell; without them it stays null.
    """
    frames = frames.filter(
        pl.col("name").str.contains(events.RECOMPUTE_FRAME.decode(), literal=True)
    )
    if not with_stack and frames.is_empty():
        return ops
    frames = frames.sort("start_ns", "end_ns", descending=[False, True])
    return ops.with_columns(recompute=pl.Series(enclosing(frames, ops, "start_ns") != NONE))


def _allocations(raw: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    on_device = pl.col("device_type") != _CPU_DEVICE_TYPE
    parent = ops["parent_id"].fill_null(NONE).to_numpy()
    return raw.with_columns(
        op_id=_links(enclosing(ops, raw, "time_ns", parent)),
        device=pl.when(on_device).then(pl.col("device")),
        category=pl.when(on_device).then(pl.lit("device")).otherwise(pl.lit("cpu")),
    ).sort("time_ns", maintain_order=True)


def _main_process(*frames: pl.DataFrame) -> int | None:
    """The process of the first of `frames` that has rows: kernel events do not name theirs."""
    for frame in frames:
        if frame.height:
            return int(frame["process"].mode().min())  # type: ignore[arg-type]
    return None


def _device_position(devices: tuple[Device, ...], kernels: pl.DataFrame) -> int:
    """The place in `devices` of the one that most kernels ran on."""
    used = kernels["device"].drop_nulls().mode().sort()
    for index in used.to_list():
        for position, device in enumerate(devices):
            if device.index == index:
                return position
    return 0


def _finish(name: str, frame: pl.DataFrame, rank: int, base_ns: int) -> pl.DataFrame:
    """`frame` as the table `name`: on the capture's clock, with its rank and exact types."""
    table = schema.TABLES[name]
    times = [column for column in ("start_ns", "end_ns", "time_ns") if column in frame.columns]
    # A number that is too large for its column is no size or index: null.
    narrow = [
        column for column, dtype in table.items() if dtype == pl.Int32 and column in frame.columns
    ]
    return schema.conform(
        name,
        frame.with_columns(
            pl.lit(rank, pl.Int32).alias("rank"),
            pl.col(times) + base_ns,
            pl.col(narrow).cast(pl.Int32, strict=False),
        ),
    )


def _earliest(frames: dict[str, pl.DataFrame]) -> int:
    starts = (frame["start_ns"].min() for frame in frames.values() if "start_ns" in frame.columns)
    return min(start for start in starts if isinstance(start, int))


def _missing(frames: dict[str, pl.DataFrame], on_cpu: bool, shapes: bool) -> list[str]:
    """What the trace does not hold, and how to record it."""
    missing = []
    if on_cpu:
        missing.append(
            "No GPU activity in the trace: its leaf operators count as the work. If a GPU was "
            "used, record with ProfilerActivity.CUDA where CUPTI works."
        )
    elif frames["kernels"].is_empty():
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
    if frames["steps"].is_empty():
        missing.append("No steps in the trace: call prof.step() after each step while recording.")
    return missing
