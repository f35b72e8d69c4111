"""Results of NVIDIA AIPerf: profile_export_aiperf.json, and the like of genai-perf."""

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any

from gpuprof.collectors.benchmark_results.documents import Document, nanoseconds
from gpuprof.collectors.benchmark_results.run import BenchmarkRun, ReportedBenchmark
from gpuprof.collectors.benchmark_results.table import reported_metrics, tool

_TOOL = "aiperf"
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9}


def is_aiperf(document: Document) -> bool:
    """Whether `document` is AIPerf's summary of a run."""
    return document.at("request_throughput.avg") is not None


def not_a_run(document: Document) -> str:
    """What of AIPerf's `document` is, where it is no summary of a run; "" for no file of AIPerf."""
    if not {"metadata", "metrics"} <= document.content.keys():
        return ""
    if document.at("metadata.num_profile_runs") is not None:
        return "summarises several runs of AIPerf"
    return "has the requests of a run of AIPerf"


def read_aiperf(document: Document) -> BenchmarkRun:
    """A run of AIPerf. Raises `CaptureError`."""
    rows = tool(_TOOL)
    completed = document.number("request_count.avg")
    failed = document.number("error_request_count.avg") or 0.0
    flat = dict(_flat(document.content.get("input_config") or {}, "input_config"))
    models = ", ".join(_models(document))
    devices = sorted(_devices(document))
    return BenchmarkRun(
        tool=_TOOL,
        place=document.place,
        benchmarks=(
            ReportedBenchmark(
                settings=({"model": models} if models else {})
                | {
                    key: value
                    for key, value in flat.items()
                    if not any(fnmatchcase(key, pattern) for pattern in rows.ignored)
                },
                figures=_figures(document),
            ),
        ),
        surroundings={"devices": ", ".join(devices)} if devices else {},
        remarks={
            key: str(value) for key in rows.remarks if (value := document.at(key)) is not None
        },
        start_ns=_time_ns(document.content.get("start_time")),
        end_ns=_time_ns(document.content.get("end_time")),
        requests=None if completed is None else round(completed + failed),
        failed_requests=None if completed is None else round(failed),
        problem=_problem(document, completed),
    )


def _problem(document: Document, completed: float | None) -> str:
    if document.content.get("was_cancelled"):
        return "it was cancelled"
    return "none of its requests succeeded" if completed == 0 else ""


def _figures(document: Document) -> dict[str, float]:
    figures = {}
    for metric in reported_metrics():
        key = metric.keys.get(_TOOL, "")
        value = document.number(key) if key else None
        if value is None or value <= 0:
            continue
        if metric.unit == "ns":
            unit = document.at(f"{key.rpartition('.')[0]}.unit")
            if not isinstance(unit, str) or unit not in _NS:
                place = f"{key.rpartition('.')[0]}.unit"
                raise document.error(place, f"is {unit!r}", expected=f"one of {', '.join(_NS)}")
            value *= _NS[unit]
        figures[metric.name] = value
    return figures


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The leaves of `value` by their dotted paths; a list is one leaf."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}")
    elif value is not None:
        yield path, value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _models(document: Document) -> list[str]:
    """The names of the models, where older and newer versions keep them."""
    named = document.at("input_config.endpoint.model_names") or document.at(
        "input_config.models.items"
    )
    items = named if isinstance(named, list) else []
    return [str(item.get("name", item)) if isinstance(item, dict) else str(item) for item in items]


def _devices(document: Document) -> Iterator[str]:
    """The names of the GPUs that it watched, one for each."""
    endpoints = document.at("telemetry_data.endpoints")
    for endpoint in endpoints.values() if isinstance(endpoints, dict) else ():
        gpus = endpoint.get("gpus") if isinstance(endpoint, dict) else None
        for gpu in gpus.values() if isinstance(gpus, dict) else ():
            if isinstance(gpu, dict) and "gpu_name" in gpu:
                yield str(gpu["gpu_name"])


def _time_ns(text: Any) -> int | None:
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        return None
    # Most have no time zone; all runs of one machine have the same.
    return nanoseconds((time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp())
