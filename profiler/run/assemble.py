"""Makes a Capture of what a session saw."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from gpuprof._version import __version__
from gpuprof.collectors import kineto, schema, storage
from gpuprof.collectors.call_tree.compiled_origins import with_origins
from gpuprof.collectors.call_tree.program_places import with_positions
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.held_cupti import held_sentence, suspect_sentence
from gpuprof.collectors.joining.captured_graphs import with_kernels
from gpuprof.collectors.joining.graph_partners import with_nodes_of
from gpuprof.collectors.kineto.reader import NO_DEVICE_EVENT
from gpuprof.collectors.live.collected import tables_of
from gpuprof.collectors.live.fingerprint import cpu_device
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.manifest import Manifest, ProcessInfo
from gpuprof.profiler.run.observations import Observations
from gpuprof.profiler.run.recorded import Recorded
from gpuprof.roofline.work.attribution import attribute

# pytorch torch/csrc/autograd/engine.cpp: one event for each node of each backward pass.
_AUTOGRAD_NODE: Final = "autograd::engine::evaluate_function"
WHOLE_SCRIPT = "the whole script, which marked no steps"
_STEP_COLUMNS = (
    *("phase", "start_ns", "end_ns"),
    *("device_ns", "device_start_ns", "host_ns", "run_delay_ns"),
    *("garbage_collection_ns", "loader_ns", "tokens"),
)


def assemble(recorded: Recorded, *, read_again: bool = False) -> Capture:
    """The attributed capture of one process; `read_again`: the next one has the same trace."""
    seen, process = recorded.seen, recorded.process
    traced, problem = _read_trace(
        seen.trace, read_again=read_again, elsewhere=seen.cupti_held_by is not None
    )
    found_by = seen.found_by or WHOLE_SCRIPT
    steps = _steps(seen, found_by, process.rank)
    lost: list[str] = []
    collected = tables_of(recorded.collected, lambda part, sentence: lost.append(sentence))
    process = msgspec.structs.replace(
        process,
        started_ns=seen.started_ns,
        ended_ns=seen.ended_ns,
        steps_found_by=found_by,
        later_steps=seen.later_steps,
        watched_steps=seen.watched_steps,
        shapes_recorded=traced is not None,
        warnings=(
            *process.warnings,
            *lost,
            *seen.warnings,
            *_unmarked_loop(seen, traced),
            *problem,
            *_trace_warnings(seen, traced),
        ),
    )
    if traced is not None:
        groups = traced.processes[0].process_groups
        process = msgspec.structs.replace(
            _with_traced_device(process, traced), process_groups=groups
        )
    manifest = Manifest(
        tool_version=__version__,
        source=recorded.subject.source,
        title=recorded.subject.title,
        created_ns=seen.started_ns,
        ranks=(process.rank,),
    )
    base = Capture(manifest, (process,)) if traced is None else _rebased(traced, manifest, process)
    tables = {**base.tables(), "steps": steps}
    beside = _tables(seen.beside_trace, process)
    for found in (collected, beside):
        for name, frame in found.items():
            if name in tables:
                tables[name] = pl.concat([tables[name], frame])
    tables["ops"] = _placed(tables["ops"], beside)
    tables["graph_nodes"] = with_kernels(tables["graph_nodes"], seen.graphs)
    capture = Capture(base.manifest, base.processes, **tables)
    return attribute(_with_captured_graphs(capture, seen, read_again=read_again))


def _with_captured_graphs(capture: Capture, seen: Observations, *, read_again: bool) -> Capture:
    """`capture` with the nodes of the graphs that were captured before its steps."""
    for trace in seen.graph_traces:
        if trace.path == seen.trace:
            continue
        captured, _ = _read_trace(
            trace.path, read_again=read_again, elsewhere=seen.cupti_held_by is not None
        )
        if captured is not None:
            nodes = with_kernels(captured.graph_nodes, seen.graphs)
            ops = _placed(captured.ops, _tables(trace.beside, capture.processes[0]))
            capture = with_nodes_of(capture, replace(captured, ops=ops, graph_nodes=nodes))
    return capture


def _placed(ops: pl.DataFrame, beside: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """`ops` of one trace with their places, by what was recorded beside it."""
    if "positions" in beside:
        ops = with_positions(ops, beside["positions"])
    if "compiled_runs" in beside:
        ops = with_origins(ops, beside["compiled_runs"], beside["compiled_calls"])
    return ops


def _read_trace(
    path: Path | None, *, read_again: bool, elsewhere: bool
) -> tuple[Capture | None, tuple[str, ...]]:
    """The trace, and why there is none: step times are worth keeping without it."""
    if path is None:
        return None, ()
    try:
        return _read_once(path, read_again=read_again, elsewhere=elsewhere), ()
    except CaptureError as error:
        return None, (f"nothing was profiled: {error.problem}",)


def _read_once(path: Path, *, read_again: bool, elsewhere: bool) -> Capture:
    """The trace at `path`; with `read_again` its tables stay beside it, which are quicker read."""
    tables = path.with_suffix(storage.SUFFIX)
    if storage.is_capture(tables):
        return storage.load(tables)
    traced = kineto.read(path, advise=False, recorded=True, device_elsewhere=elsewhere)
    if read_again:
        with suppress(OSError):
            storage.save(traced, tables)
    return traced


def _rebased(traced: Capture, manifest: Manifest, process: ProcessInfo) -> Capture:
    # The trace calls its only process rank 0 unless torch.distributed was initialised.
    rank = pl.lit(process.rank, pl.Int32).alias("rank")
    tables = {name: frame.with_columns(rank) for name, frame in traced.tables().items()}
    return Capture(manifest, (process,), **tables)


def _with_traced_device(process: ProcessInfo, traced: Capture) -> ProcessInfo:
    """`process` with `device` set to the one whose work the trace holds."""
    devices = process.fingerprint.devices
    if traced.kernels.is_empty():
        return process
    used = traced.processes[0].fingerprint.devices
    kinds = {"cpu"} if used and used[0].kind == "cpu" else {"cuda", "hip"}
    busiest = (
        traced.kernels.group_by("device")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
        .sort("ns", "device")["device"][-1]
    )
    for position, device in enumerate(devices):
        if device.kind in kinds and (device.kind == "cpu" or device.index == busiest):
            return msgspec.structs.replace(process, device=position)
    if kinds != {"cpu"}:
        return process
    # A machine's fingerprint names its GPUs; this program left them alone.
    with_cpu = msgspec.structs.replace(process.fingerprint, devices=(*devices, cpu_device()))
    return msgspec.structs.replace(process, fingerprint=with_cpu, device=len(devices))


def _steps(seen: Observations, found_by: str, rank: int) -> pl.DataFrame:
    looked_at = seen.first_look_steps
    rows: list[dict[str, object]] = [
        {
            "phase": step.phase,
            "start_ns": step.start_ns,
            "end_ns": step.end_ns,
            "device_ns": step.device_ns,
            "device_start_ns": step.device_start_ns,
            "host_ns": step.host_ns,
            "run_delay_ns": step.run_delay_ns,
            "garbage_collection_ns": step.garbage_collection_ns,
            "loader_ns": step.loader_ns,
            "tokens": step.tokens,
        }
        for step in seen.steps
        # The first look may hold steps that the clock of the warm-up saw too.
        if not any(start_ns <= step.start_ns < end_ns for start_ns, end_ns in looked_at)
    ]
    rows += [
        {"phase": "profiled", "start_ns": start_ns, "end_ns": end_ns, "host_ns": end_ns - start_ns}
        for start_ns, end_ns in looked_at
    ]
    frame = pl.DataFrame(rows, schema={name: schema.STEPS[name] for name in _STEP_COLUMNS})
    return schema.conform(
        "steps",
        frame.sort("start_ns").with_columns(
            pl.int_range(pl.len()).alias("index"),
            pl.lit(found_by).alias("found_by"),
            pl.lit(rank, pl.Int32).alias("rank"),
        ),
    )


def _tables(rows: Rows, process: ProcessInfo) -> dict[str, pl.DataFrame]:
    """What was recorded beside a trace, as rows of this process's tables."""
    frames = {}
    for table, found in rows.items():
        columns = schema.BESIDE_A_PROFILE[table]
        own: dict[str, object] = {"rank": process.rank}
        if "process" in columns:
            own["process"] = process.process
        frames[table] = pl.DataFrame([{**row, **own} for row in found], schema=columns)
    return frames


def _unmarked_loop(seen: Observations, traced: Capture | None) -> tuple[str, ...]:
    """What to do where backward passes show that the program has steps, and nothing marks them."""
    known = seen.found_by is not None or not seen.looks_for_steps
    if known or traced is None or any("gpuprof.step()" in said for said in seen.warnings):
        return ()
    passes = backward_passes(traced)
    if passes < 2:
        return ()
    return (
        f"nothing marked a step, though {passes} backward passes ran: call gpuprof.step() at the "
        "end of each pass of the loop, and steps are timed and profiled one by one",
    )


def backward_passes(traced: Capture) -> int:
    """At least so many ran: each evaluates each node of its graph once."""
    nodes = traced.ops.filter(pl.col("name").str.starts_with(_AUTOGRAD_NODE))
    return min(nodes["name"].value_counts()["count"], default=0)


def _trace_warnings(seen: Observations, traced: Capture | None) -> tuple[str, ...]:
    """What is missing in the trace, and who has it where another tool held CUPTI."""
    if traced is None:
        return ()
    said = traced.processes[0].warnings
    if NO_DEVICE_EVENT not in said:
        return said
    others = tuple(sentence for sentence in said if sentence != NO_DEVICE_EVENT)
    if seen.cupti_held_by is not None:
        return (held_sentence(seen.cupti_held_by), *others)
    if seen.cupti_suspect is not None:
        return (suspect_sentence(seen.cupti_suspect), *others)
    return said
