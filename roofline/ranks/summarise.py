"""One rank of a capture -> its `RankSummary`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.ranks import is_bystander
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.roofline.intervals import covered_ns, merged
from gpuprof.roofline.points.process_roofs import device_of
from gpuprof.roofline.ranks.collective_rows import collective_rows, whole_steps
from gpuprof.roofline.ranks.device_steps import device_steps
from gpuprof.roofline.ranks.summary import IDLE, STATES, STEPS, RankProcess, RankSummary
from gpuprof.roofline.ranks.work_rows import idle_rows, work_rows
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.math_mode import math_mode
from gpuprof.roofline.work.work import Work, find_work

# Rows at most: together a few hundred kB.
_COLLECTIVES: Final = 8192
_WORK: Final = 4096
_IDLE_ROWS: Final = 1024
_STEPS: Final = 2048
# The range around its forward pass: torch/nn/parallel/distributed.py.
_DDP: Final = "DistributedDataParallel.forward"
_VERSIONS: Final = ("torch", "cuda", "hip", "nccl", "cudnn", "triton", "driver", "python")
# A step may lie between two samples of NVML.
_NEAR_NS: Final = 600_000_000


def summarise(
    capture: Capture, rank: int, work: Work | None = None, *, is_alone: bool = False
) -> RankSummary:
    """What is kept of `rank`, which `capture` may hold beside others.

    `work` is its device work, where that was found already. `is_alone`: no other rank will stand
    beside it, so that why its device had no work is left out: it would tell who is late.
    Raises `ValueError` for a rank that the capture does not hold.
    """
    own = attribute(capture.rank(rank))
    process = own.processes[0]
    device = device_of(process)
    on_cpu = device is not None and device.kind == "cpu"
    records = own.collective_records.drop("rank")
    facts = RankProcess(
        rank=rank,
        world_size=process.world_size,
        host=process.host,
        local_device=None if device is None or on_cpu else device.index,
        device_name=None if device is None else device.name,
        on_cpu=on_cpu,
        versions=_versions(process.fingerprint),
        environment=process.fingerprint.environment,
        title=capture.manifest.title,
        warnings=process.warnings,
        source=capture.manifest.source,
        rank_from=process.rank_from,
        is_bystander=is_bystander(capture),
        uses_ddp=_DDP in own.ranges["name"],
        process_groups=process.process_groups if records.height else (),
        communicators=process.communicators,
    )
    if work is None:
        work = find_work(own, math_mode(device, process))
    # Counters may be recorded without times, all or some of them.
    work = replace(work, kernels=work.kernels.drop_nulls("start_ns"))
    steps = device_steps(own, work.kernels, on_cpu=on_cpu)
    if steps is None:
        parts = pl.DataFrame({"index": []})
        return RankSummary(facts, _with_parts(own.steps, parts), records=records)
    found = collective_rows(own, work.kernels, steps, on_cpu=on_cpu)
    collectives = whole_steps(found, _COLLECTIVES)
    left_out = found.height - collectives.height
    return RankSummary(
        msgspec.structs.replace(facts, collectives_left_out=left_out),
        _with_parts(_marks(own.steps, steps), _parts(work.kernels, found, steps)),
        collectives,
        work_rows(own, work, collectives, _WORK),
        pl.DataFrame(schema=IDLE)
        if is_alone
        else idle_rows(own, work, steps, collectives, _IDLE_ROWS, on_cpu=on_cpu),
        _states(own.samples, steps, None if device is None else device.index),
        records,
    )


def all_summaries(capture: Capture) -> list[RankSummary]:
    """Those of all ranks of `capture`."""
    return [summarise(capture, rank) for rank in capture.manifest.ranks]


def summaries_of_job(capture: Capture, known: Mapping[int, Work]) -> list[RankSummary]:
    """Those of all ranks of an attributed capture; none of a process that does not communicate.

    `known` is the device work of ranks that were looked at already.
    """
    alone = len(capture.processes) == 1
    if (
        alone
        and "collective" not in capture.kernels["kind"]
        and capture.collective_records.is_empty()
        and not capture.processes[0].communicators
    ):
        return []
    return [
        summarise(capture, rank, known.get(rank), is_alone=alone) for rank in capture.manifest.ranks
    ]


def _versions(fingerprint: Fingerprint) -> dict[str, str]:
    found = {name: getattr(fingerprint, name) for name in _VERSIONS}
    return {name: version for name, version in found.items() if version is not None}


def _parts(kernels: pl.DataFrame, collectives: pl.DataFrame, steps: Stretch) -> pl.DataFrame:
    """How each of `steps` divides on the device, by index."""
    times = ("start_ns", "end_ns")
    working = kernels.select("kind", *times).filter(pl.col("kind") != "collective").select(times)
    busy = pl.concat([working, collectives.select(times)])
    begun_ns, done_ns = np.array(steps.spans_ns, np.int64).T
    working_ns, busy_ns = (
        covered_ns(cover, done_ns) - covered_ns(cover, begun_ns)
        for cover in (
            merged(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())
            for frame in (working, busy)
        )
    )
    return pl.DataFrame(
        {
            "index": steps.indices or (0,),
            "begun_ns": begun_ns,
            "done_ns": done_ns,
            "working_ns": working_ns,
            "exposed_communication_ns": busy_ns - working_ns,
            "idle_ns": done_ns - begun_ns - busy_ns,
        }
    )


def _marks(steps: pl.DataFrame, found: Stretch) -> pl.DataFrame:
    """The table of steps, of a trace that marks none with all of it as one."""
    if found.definition != "whole trace":
        return steps
    ((begun_ns, done_ns),) = found.spans_ns
    row = {"index": 0, "phase": "profiled", "start_ns": begun_ns, "end_ns": done_ns}
    return pl.DataFrame([row], schema=steps.schema)


def _with_parts(steps: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """The rows of `STEPS`: the profiled ones first, then as many others as there is room for."""
    rows = steps.join(
        parts.with_columns(pl.col("index").cast(pl.Int32), phase=pl.lit("profiled")),
        on=("index", "phase"),
        how="left",
        maintain_order="left",
    )
    profiled = pl.col("phase") == "profiled"
    rows = pl.concat([rows.filter(profiled), rows.filter(~profiled)]).head(_STEPS)
    return rows.select(
        pl.col(name).cast(dtype) if name in rows.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in STEPS.items()
    ).sort("start_ns", maintain_order=True)


def _states(samples: pl.DataFrame, steps: Stretch, device: int | None) -> pl.DataFrame:
    """The samples in each step, the nearest one where there are none."""
    own = samples.filter(pl.col("device") == pl.lit(device, pl.Int32)).sort("time_ns")
    times = own["time_ns"].to_numpy()
    rows = []
    for index, (begun_ns, done_ns) in zip(steps.indices or (0,), steps.spans_ns, strict=True):
        first, last = np.searchsorted(times, (begun_ns, done_ns))
        if first == last and len(times):
            distances = np.abs(times - (begun_ns + done_ns) // 2)
            nearest = int(np.argmin(distances))
            near = int(distances[nearest] <= _NEAR_NS)
            first, last = nearest, nearest + near
        seen = own[int(first) : int(last)]
        reasons = seen["throttle_reasons"].drop_nulls().to_list()
        rows.append(
            (
                index,
                _median(seen["sm_clock_mhz"]),
                _median(seen["power_milliwatts"]),
                reduce(or_, reasons) if reasons else None,
            )
        )
    return pl.DataFrame(rows, schema=STATES, orient="row")


def _median(column: pl.Series) -> int | None:
    value = column.median()
    return round(value) if isinstance(value, (int, float)) else None
