"""Which tool wrote a result, and its runs."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpuprof.collectors.benchmark_results import aiperf, nvbench, serving
from gpuprof.collectors.benchmark_results.documents import Document, documents
from gpuprof.collectors.benchmark_results.run import BenchmarkRun
from gpuprof.collectors.errors import CaptureError

KNOWN = "a result of vllm bench serve, SGLang's bench_serving, AIPerf or nvbench"


# In the first bytes of a file: keys that one of the tools writes, all of them.
_MARKS = (
    (b'"model_id"', b'"request_rate"'),
    (b'"dataset_name"', b'"request_rate"'),
    (b'"request_throughput"', b'"avg"'),
    (b'"benchmarks"', b'"sm_version"'),
)


class _Format(NamedTuple):
    recognises: Callable[[Document], bool]
    read: Callable[[Document], BenchmarkRun]


_FORMATS = (
    _Format(nvbench.is_nvbench, nvbench.read_nvbench),
    _Format(aiperf.is_aiperf, aiperf.read_aiperf),
    _Format(serving.is_vllm, serving.read_vllm),
    _Format(serving.is_sglang, serving.read_sglang),
)


def looks_like_a_result(start: bytes) -> bool:
    """Whether a file that begins with `start` may be a result of one of the tools."""
    return any(all(mark in start for mark in marks) for marks in _MARKS)


def read_runs(path: Path) -> tuple[BenchmarkRun, ...]:
    """The runs in `path`, in their order. Raises `CaptureError` for what is none."""
    found = documents(path)
    if not found:
        raise CaptureError(path, "is empty", expected=KNOWN, remedy="run the benchmark again")
    return tuple(_read(document) for document in found)


def _read(document: Document) -> BenchmarkRun:
    for form in _FORMATS:
        if form.recognises(document):
            return form.read(document)
    if problem := aiperf.not_a_run(document):
        raise CaptureError(
            document.path,
            problem,
            expected=KNOWN,
            remedy="give profile_export_aiperf.json of each run",
        )
    place = f"line {document.line}" if document.line else ""
    raise CaptureError(document.path, "is something else", place=place, expected=KNOWN)
