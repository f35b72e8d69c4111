"""Results of nvbench: --json, and --jsonbin with the samples in files of their own."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gpuprof.collectors.benchmark_results.documents import Document
from gpuprof.collectors.benchmark_results.run import BenchmarkRun, ReportedBenchmark
from gpuprof.collectors.benchmark_results.table import reported_metrics, tool
from gpuprof.collectors.errors import CaptureError, problem_of

_TOOL = "nvbench"
_SAMPLES = "nv/json/bin:nv/cold/sample_times"
_SAMPLE = np.dtype("<f4")
# Each takes ten times its bytes, and there are some thousands.
_MOST_SAMPLES = 5_000_000
_DEVICE = re.compile(r"^Device=\d+ ?")
_LOCKING = ("--lock-gpu-clocks", "--lgc")


def is_nvbench(document: Document) -> bool:
    """Whether `document` is a result of nvbench."""
    benchmarks = document.content.get("benchmarks")
    return isinstance(benchmarks, list) and "devices" in document.content


def read_nvbench(document: Document) -> BenchmarkRun:
    """A run of nvbench: every state that it did not skip. Raises `CaptureError`."""
    try:
        devices = {device["id"]: str(device["name"]) for device in document.content["devices"]}
        used = {
            devices[state["device"]]
            for benchmark in document.content["benchmarks"]
            for state in benchmark["states"] or ()
            if state.get("device") in devices
        }
        return BenchmarkRun(
            tool=_TOOL,
            place=document.place,
            benchmarks=tuple(_benchmarks(document, several_devices=len(devices) > 1)),
            surroundings={
                **({"devices": ", ".join(sorted(used))} if used else {}),
                "GPU clocks": _clock_lock(document),
            },
            remarks={
                key: str(value)
                for key in tool(_TOOL).remarks
                if (value := document.at(key)) is not None
            },
        )
    # ValueError: also a file name with a NUL. OverflowError: infinitely many samples.
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise CaptureError(
            document.path, f"is no complete result of nvbench ({error!r})", remedy="run it again"
        ) from error


def _benchmarks(document: Document, *, several_devices: bool) -> Iterator[ReportedBenchmark]:
    for benchmark in document.content["benchmarks"]:
        for state in benchmark["states"] or ():
            if state.get("is_skipped"):
                continue
            # "Device=0 Elements=2^20": its axes as its user wrote them.
            axes = str(state["name"])
            if not several_devices:
                axes = _DEVICE.sub("", axes)
            summaries = {
                summary["tag"]: {value["name"]: value["value"] for value in summary.get("data", ())}
                for summary in state.get("summaries") or ()
            }
            yield ReportedBenchmark(
                name="/".join(filter(None, (benchmark["name"], axes))),
                figures=_figures(document, summaries),
                samples_ns=_samples(document, summaries.get(_SAMPLES)),
            )


def _figures(document: Document, summaries: dict[str, dict[str, Any]]) -> dict[str, float]:
    figures = {}
    for metric in reported_metrics():
        tag = metric.keys.get(_TOOL, "")
        if tag not in summaries:
            continue
        text = summaries[tag].get("value")
        try:
            # Numbers are written as text, so that readers round none.
            value = float(text) if text is not None else 0.0
        except ValueError as error:
            raise document.error(tag, f"is {text!r}", expected="a number") from error
        if document.checked(tag, value) > 0:
            figures[metric.name] = value * metric.scale
    return figures


def _samples(document: Document, summary: dict[str, Any] | None) -> tuple[float, ...]:
    """The samples beside the file, in ns; () without --jsonbin. Raises `CaptureError`."""
    if summary is None:
        return ()
    named = Path(str(summary["filename"]))
    # nvbench names it relative to where it ran; files are moved together.
    beside = document.path.parent
    places = (beside / named, beside.parent / named, beside / Path(*named.parts[-2:]), named)
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        # The summary has their mean: a copied JSON file without its folder is a result too.
        return ()
    stated = int(summary["size"])
    try:
        # It may name any file.
        count = file.stat().st_size // _SAMPLE.itemsize
        samples = np.fromfile(file, dtype=_SAMPLE) if count == stated <= _MOST_SAMPLES else None
    except OSError as error:
        raise CaptureError(file, problem_of(error)) from error
    if samples is None:
        raise CaptureError(
            file,
            f"has {count} samples",
            expected=f"{stated}, as {document.path} says, and {_MOST_SAMPLES} at most",
            remedy="keep each JSON file beside its own folder of samples",
        )
    if not np.isfinite(samples).all():
        raise CaptureError(file, "holds what is no number", remedy="run the benchmark again")
    return tuple((samples.astype(np.float64) * 1e9).tolist())


def _clock_lock(document: Document) -> str:
    """Whether nvbench locked the clocks, by its command line; another may have done so before."""
    arguments = [str(argument) for argument in document.at("meta.argv") or ()]
    for option, value in pairwise(arguments):
        if option in _LOCKING:
            return f"locked to {value} by nvbench"
    return "not locked by nvbench"
