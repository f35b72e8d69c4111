"""One version of a bench on its own: its calls are its steps."""

from dataclasses import replace

import msgspec
import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.bench.results import CaseResult


def capture_of(case: CaseResult, capture: Capture) -> Capture:
    """The `capture` of a bench without the calls of other versions than that of `case`."""
    calls = capture.ranges.filter(
        (pl.col("name") == case.label) & (pl.col("domain") == "bench")
    ).sort("start_ns")
    windows = list(calls.select("start_ns", "end_ns").iter_rows())
    within = pl.any_horizontal(
        pl.lit(False), *(pl.col("start_ns").is_between(*window) for window in windows)
    )
    start_ns = case.started_ns or 0
    host_ns = case.host_samples_ns or case.samples_ns
    rows: list[dict[str, object]] = []
    for sample_ns, on_host_ns in zip(case.samples_ns, host_ns, strict=True):
        rows.append(
            {
                "phase": "timed",
                "start_ns": start_ns,
                "end_ns": start_ns + sample_ns,
                "device_ns": sample_ns if case.host_samples_ns else None,
                "host_ns": on_host_ns,
            }
        )
        start_ns += sample_ns
    rows += [
        {"phase": "profiled", "start_ns": start, "end_ns": end, "host_ns": end - start}
        for start, end in windows
    ]
    steps = pl.DataFrame(
        rows, schema={name: schema.STEPS[name] for name in (*rows[0],)} if rows else None
    ).with_columns(
        pl.int_range(pl.len()).cast(pl.Int32).alias("index"),
        pl.lit(capture.processes[0].rank, pl.Int32).alias("rank"),
        pl.lit(case.label).alias("found_by"),
    )
    # Kernels say which step they belong to by its index; the profiled ones are numbered anew.
    first = len(case.samples_ns)
    kernels = capture.kernels.filter(within)
    numbers = pl.Series(
        "step",
        [
            first + next(i for i, (start, end) in enumerate(windows) if start <= begin <= end)
            for begin in kernels["start_ns"]
        ],
        dtype=pl.Int32,
    )
    process = msgspec.structs.replace(capture.processes[0], steps_found_by=case.label)
    return replace(
        capture,
        processes=(process,),
        kernels=kernels.with_columns(numbers),
        ops=capture.ops.filter(within),
        launches=capture.launches.filter(within),
        ranges=calls,
        steps=schema.conform("steps", steps),
    )
