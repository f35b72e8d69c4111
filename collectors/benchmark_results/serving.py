"""Results of `vllm bench serve` and of SGLang's bench_serving: flat objects that differ in keys."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from gpuprof.collectors.benchmark_results.documents import Document, nanoseconds
from gpuprof.collectors.benchmark_results.run import BenchmarkRun, ReportedBenchmark
from gpuprof.collectors.benchmark_results.table import RequestLatency, Tool, reported_metrics, tool

_VLLM_DATE = "%Y%m%d-%H%M%S"


def is_vllm(document: Document) -> bool:
    """Whether `document` is a result of vLLM's serving benchmark."""
    return {"request_throughput", "model_id"} <= document.content.keys()


def is_sglang(document: Document) -> bool:
    """Whether `document` is a result of SGLang's serving benchmark."""
    return {"dataset_name", "total_output_tokens_retokenized"} <= document.content.keys()


def read_vllm(document: Document) -> BenchmarkRun:
    """A run of vLLM's benchmark. Raises `CaptureError`."""
    completed, prompts = document.number("completed"), document.number("num_prompts")
    failed = document.number("failed")
    if failed is None and completed is not None and prompts is not None:
        # Older versions tell only what succeeded.
        failed = prompts - completed
    end_ns = _date_ns(document)
    duration_s = document.number("duration")
    duration_ns = None if duration_s is None else nanoseconds(duration_s)
    return _run(
        "vllm",
        document,
        failed,
        completed,
        start_ns=None if end_ns is None or duration_ns is None else end_ns - duration_ns,
        end_ns=end_ns,
    )


def read_sglang(document: Document) -> BenchmarkRun:
    """A run of SGLang's benchmark. Raises `CaptureError`."""
    errors = document.content.get("errors")
    failed = sum(map(bool, errors)) if isinstance(errors, list) else document.number("failed")
    return _run("sglang", document, failed, document.number("completed"))


def _run(
    name: str,
    document: Document,
    failed: float | None,
    completed: float | None,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> BenchmarkRun:
    rows = tool(name)
    known = {key: document.at(key) for key in rows.remarks}
    beside = dict(_beside_its_own(rows, document))
    requests = None if failed is None or completed is None else round(failed + completed)
    return BenchmarkRun(
        tool=name,
        place=document.place,
        benchmarks=(
            ReportedBenchmark(
                settings={
                    key: str(value)
                    for key in rows.settings
                    if (value := document.at(key)) is not None
                },
                figures=_figures(name, document),
            ),
        ),
        # What --metadata notes is text; what a sweep sets mostly is none.
        remarks={
            **{key: str(value) for key, value in known.items() if value is not None},
            **{key: value for key, value in beside.items() if isinstance(value, str)},
        },
        parameters={key: str(v) for key, v in beside.items() if not isinstance(v, str)},
        start_ns=start_ns,
        end_ns=end_ns,
        requests=requests,
        failed_requests=None if failed is None else round(failed),
        problem="none of its requests succeeded" if completed == 0 else "",
    )


def _beside_its_own(rows: Tool, document: Document) -> Iterator[tuple[str, str | float]]:
    """Words and numbers of the file that the tool does not write by itself."""
    known = (*rows.settings, *rows.remarks, *rows.results)
    for key, value in document.content.items():
        if isinstance(value, (str, int, float)) and not any(fnmatchcase(key, k) for k in known):
            yield key, value


def _figures(name: str, document: Document) -> dict[str, float]:
    """What the summary has, and what it lacks from the requests, where the file has them."""
    figures: dict[str, float] = {}
    quantities: dict[RequestLatency, np.ndarray[Any, np.dtype[np.float64]]] | None = None
    for metric in reported_metrics():
        if name not in metric.keys:
            continue
        value = document.number(metric.keys[name])
        if value is not None:
            value *= metric.scale
        elif metric.sample is not None:
            if quantities is None:
                quantities = _quantities(document)
            samples = quantities.get(metric.sample.quantity)
            if samples is not None and samples.size:
                value = float(np.quantile(samples, metric.sample.quantile)) * 1e9
        if value is not None and value > 0:
            figures[metric.name] = value
    return figures


def _quantities(document: Document) -> dict[RequestLatency, np.ndarray[Any, np.dtype[np.float64]]]:
    """Of the requests that succeeded, in seconds, as vLLM's `calculate_metrics` defines them.

    Empty without --save-detailed or --output-details. TPOT is (E2EL - TTFT) / (output tokens - 1)
    of requests with more than one token; ITL is every gap of every request.
    """
    lists: list[Sequence[Any]] = []
    for key in ("ttfts", "itls", "output_lens"):
        value = document.content.get(key)
        if not isinstance(value, list):
            return {}
        lists.append(value)
    count = len(lists[0])
    errors = document.content.get("errors") or [""] * count
    if not isinstance(errors, list) or any(len(values) != count for values in (*lists, errors)):
        raise document.error("ttfts", "the lists of its requests differ in length")
    try:
        requests = [
            (float(ttft), np.asarray(itls, dtype=np.float64), int(tokens))
            for ttft, itls, tokens, error in zip(*lists, errors, strict=True)
            if not error
        ]
        if any(
            itls.ndim != 1 or not np.isfinite([ttft, *itls]).all() for ttft, itls, _ in requests
        ):
            raise ValueError
    # OverflowError: infinitely many tokens.
    except (TypeError, ValueError, OverflowError) as error:
        raise document.error("ttfts", "its requests hold what is no number") from error
    generating = [(float(itls.sum()), tokens) for _, itls, tokens in requests if tokens > 1]
    return {
        "ttft": np.array([ttft for ttft, _, _ in requests]),
        "tpot": np.array([gaps_s / (tokens - 1) for gaps_s, tokens in generating]),
        "itl": np.concatenate([itls for _, itls, _ in requests]) if requests else np.empty(0),
        "e2el": np.array([ttft + float(itls.sum()) for ttft, itls, _ in requests]),
    }


def _date_ns(document: Document) -> int | None:
    """When the run ended, by the machine's own clock; None where that is not told."""
    try:
        ended = datetime.strptime(str(document.content.get("date")), _VLLM_DATE)
    except ValueError:
        return None
    # It has no time zone: all runs of one machine have the same.
    return nanoseconds(ended.replace(tzinfo=timezone.utc).timestamp())
