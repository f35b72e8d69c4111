"""The benchmarks in what one process stored: one a capture, or one a version of a bench."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import polars as pl

from gpuprof.collectors import schema, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.configuration.targets import CAPTURES, Target
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.bench.results import BENCH_FILE, BenchReport, CaseResult


@dataclass(frozen=True)
class Benchmark:
    """One benchmark as one process recorded it: a capture of one rank, and what it means."""

    name: str
    capture: Capture
    analysis: Analysis


def benchmarks(output: Path, target: Target) -> Iterator[Benchmark]:
    """What a process of `target` stored in the folder `output`. Raises `CaptureError`."""
    for path in sorted(output.glob(CAPTURES)):
        capture = storage.load(path)
        capture = capture.rank(capture.manifest.ranks[0])
        if (path / BENCH_FILE).is_file():
            yield from _versions(capture, path / BENCH_FILE, target)
        else:
            yield Benchmark(target.benchmark(path), capture, load_analysis(path))


def _versions(capture: Capture, file: Path, target: Target) -> Iterator[Benchmark]:
    """Each version of a bench on its own: its calls are its steps."""
    try:
        report = msgspec.json.decode(file.read_bytes(), type=BenchReport)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise CaptureError(file, str(error), remedy="run the bench again") from error
    for case in report.cases:
        if case.error is not None:
            raise CaptureError(file, f"{case.label}: {case.error}")
        own = _only(capture, case)
        yield Benchmark(f"{target.name}/{case.label}", own, analyze(own))


def _only(capture: Capture, case: CaseResult) -> Capture:
    """`capture` without the calls of other versions."""
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
