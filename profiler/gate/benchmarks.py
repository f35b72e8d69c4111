"""The benchmarks in what one process stored: one a capture, or one a version of a bench."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.profiler.bench.reading import read_bench
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.configuration.targets import CAPTURES, Target
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.bench.results import BENCH_FILE
from gpuprof.roofline.bench.versions import capture_of


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
    for case in read_bench(file).cases:
        if case.error is not None:
            raise CaptureError(file, f"{case.label}: {case.error}")
        own = capture_of(case, capture)
        yield Benchmark(f"{target.name}/{case.label}", own, analyze(own))
