"""Small results of other tools' benchmarks, in the layouts that these tools write."""

import json
import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

_NOON = datetime(2026, 3, 1, 12, 0, 0)


def vllm(
    run: int = 0, *, factor: float = 1.0, minutes: float | None = None, **changed: Any
) -> dict[str, Any]:
    """A result of `vllm bench serve --save-result`; latencies and throughput worse by `factor`.

    `run` gives it noise of its own. It ended `minutes` after noon.
    """
    noise = 1 + 0.004 * math.sin(7.3 * run + 1)
    slow = factor * noise
    ended = _NOON + timedelta(minutes=2 * run if minutes is None else minutes)
    latencies = {
        f"{statistic}_{name}_ms": base * slow * scale
        for name, base in (("ttft", 42.0), ("tpot", 9.5), ("itl", 9.1))
        for statistic, scale in (("mean", 1.1), ("median", 1.0), ("std", 0.2), ("p99", 2.4))
    }
    return {
        "date": ended.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None,
        "model_id": "meta-llama/Llama-3.1-8B",
        "tokenizer_id": "meta-llama/Llama-3.1-8B",
        "num_prompts": 200,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 32,
        "duration": 30.0 * slow,
        "completed": 200,
        "failed": 0,
        "total_input_tokens": 40000,
        "total_output_tokens": 25600,
        "request_throughput": 6.6 / slow,
        "output_throughput": 853.0 / slow,
        "total_token_throughput": 2186.0 / slow,
        **latencies,
        **changed,
    }


def vllm_requests(count: int = 8, *, failed: int = 0) -> dict[str, Any]:
    """What --save-detailed adds: `count` requests, of which the first `failed` failed."""
    return {
        "input_lens": [200] * count,
        "output_lens": [0 if i < failed else 5 for i in range(count)],
        "ttfts": [0.0 if i < failed else 0.040 + 0.001 * i for i in range(count)],
        "itls": [[] if i < failed else [0.010, 0.009, 0.011, 0.010] for i in range(count)],
        "errors": ["refused" if i < failed else "" for i in range(count)],
    }


def sglang(run: int = 0, *, factor: float = 1.0, **changed: Any) -> dict[str, Any]:
    """A line of SGLang's bench_serving; its request rate is written as Infinity."""
    noise = 1 + 0.004 * math.sin(5.1 * run + 2)
    slow = factor * noise
    return {
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": math.inf,
        "max_concurrency": 16,
        "random_input_len": 1024,
        "random_output_len": 128,
        "random_range_ratio": 0.5,
        "duration": 20.0 * slow,
        "completed": 100,
        "total_input_tokens": 76800,
        "total_output_tokens": 9600,
        "total_output_tokens_retokenized": 9590,
        "request_throughput": 5.0 / slow,
        "input_throughput": 3840.0 / slow,
        "output_throughput": 480.0 / slow,
        "median_e2e_latency_ms": 1900.0 * slow,
        "p99_e2e_latency_ms": 2600.0 * slow,
        "median_ttft_ms": 61.0 * slow,
        "p99_ttft_ms": 120.0 * slow,
        "median_tpot_ms": 14.0 * slow,
        "p99_tpot_ms": 21.0 * slow,
        "median_itl_ms": 13.0 * slow,
        "p99_itl_ms": 40.0 * slow,
        **changed,
    }


def aiperf(
    run: int = 0, *, factor: float = 1.0, minutes: float | None = None, **changed: Any
) -> dict[str, Any]:
    """A profile_export_aiperf.json."""
    noise = 1 + 0.004 * math.sin(3.7 * run + 3)
    slow = factor * noise
    begun = _NOON + timedelta(minutes=2 * run if minutes is None else minutes)

    def latency(ms: float) -> dict[str, Any]:
        return {"unit": "ms", "avg": ms * 1.1 * slow, "p50": ms * slow, "p99": ms * 2 * slow}

    return {
        "schema_version": "1.0",
        "aiperf_version": "0.5.0",
        "request_throughput": {"unit": "requests/sec", "avg": 12.0 / slow},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 1500.0 / slow},
        "request_latency": latency(700.0),
        "time_to_first_token": latency(35.0),
        "inter_token_latency": latency(6.0),
        "request_count": {"unit": "requests", "avg": 100.0},
        "input_config": {
            "endpoint": {"model_names": ["Qwen/Qwen3-0.6B"], "urls": [f"host-{run}:8000"]},
            "loadgen": {"concurrency": 8, "request_count": 100},
            "output": {"artifact_directory": f"artifacts/{run}-{factor}"},
        },
        "telemetry_data": {"endpoints": {"localhost:9400": {"gpus": {"0": {"gpu_name": "H200"}}}}},
        "was_cancelled": False,
        "start_time": begun.isoformat(),
        "end_time": (begun + timedelta(seconds=30)).isoformat(),
        **changed,
    }


def nvbench(
    run: int = 0,
    *,
    factor: float = 1.0,
    states: tuple[str, ...] = ("2^16", "2^20"),
    arguments: tuple[str, ...] = (),
    device: str = "NVIDIA H200",
) -> dict[str, Any]:
    """A result of an nvbench program with one benchmark, `copy`, of one axis; times in seconds."""
    noise = 1 + 0.004 * math.sin(2.9 * run + 4)

    def summary(tag: str, value: float) -> dict[str, Any]:
        return {"tag": tag, "data": [{"name": "value", "type": "float64", "value": str(value)}]}

    return {
        "meta": {
            "argv": ["./copy", *arguments, "--json", f"{run}.json"],
            "version": {"json": {"string": "1.0.0"}, "nvbench": {"string": "0.1.0"}},
        },
        "devices": [{"id": 0, "name": device, "sm_version": 900, "number_of_sms": 132}],
        "benchmarks": [
            {
                "name": "copy",
                "devices": [0],
                "axes": [],
                "states": [
                    {
                        "name": f"Device=0 Elements={state}",
                        "device": 0,
                        "axis_values": [{"name": "Elements", "type": "string", "value": state}],
                        "summaries": [
                            summary("nv/cold/time/gpu/mean", 3e-5 * (index + 1) * factor * noise),
                            summary("nv/batch/time/gpu/mean", 2e-5 * (index + 1) * factor * noise),
                        ],
                        "is_skipped": False,
                    }
                    for index, state in enumerate(states)
                ],
            }
        ],
    }


def with_samples(result: dict[str, Any], file: Path, *, count: int = 50) -> dict[str, Any]:
    """`result` of nvbench as --jsonbin writes it to `file`: each state's samples beside it."""
    folder = Path(f"{file}-bin")
    folder.mkdir(parents=True, exist_ok=True)
    for index, state in enumerate(result["benchmarks"][0]["states"]):
        mean_s = float(state["summaries"][0]["data"][0]["value"])
        # A few slow samples, which move the mean and not the median.
        samples = mean_s * np.where(np.arange(count) % 10 == 0, 1.5, 1.0)
        samples.astype("<f4").tofile(folder / f"{index}.bin")
        state["summaries"].append(
            {
                "tag": "nv/json/bin:nv/cold/sample_times",
                "data": [
                    # As the program saw it, in the folder in which it ran.
                    {"name": "filename", "type": "string", "value": f"{folder.name}/{index}.bin"},
                    {"name": "size", "type": "int64", "value": str(count)},
                ],
            }
        )
    return result


def store(file: Path, *results: dict[str, Any]) -> Path:
    """`results` as one file: a JSON object, or a line each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(json.dumps(result) for result in results) + "\n")
    return file
