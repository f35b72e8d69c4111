"""How much of public traces' device time graphs replay, and whether a partner has its kernels.

    python benchmarks/graph_partners.py FOLDER_OF_TRACES

Nothing of gpuprof is used: the figures stand in docs/graphs.md beside gpuprof's own.
"""

import gzip
import json
import sys
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

PAIRS = (
    ("tracelens_vllm_decode_full_graph", "tracelens_vllm_graph_capture_full.pt.trace"),
    ("tracelens_sglang_qwen3-8b_decode_graph", "tracelens_sglang_graph_capture_bs32"),
    ("h100_block_cudagraph", "h100_block_infer_fp16"),
)
WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return sorted((each for each in found if each.get("ph") == "X"), key=lambda each: each["ts"])


def replays(trace: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The device work of each launch of a graph."""
    launches = {
        each["args"]["correlation"]: []
        for each in trace
        if each["cat"] == "cuda_runtime" and each["name"].endswith("GraphLaunch")
    }
    for each in trace:
        if each["cat"] in WORK:
            launches.get(each["args"].get("correlation"), []).append(each)
    return launches


def launched_names(trace: list[dict[str, Any]]) -> list[str]:
    """Names of kernels as calls launch them: those that calls name, else those that ran."""
    named = [each["args"]["kernel"] for each in trace if "kernel" in each.get("args", {})]
    return named or [each["name"] for each in trace if each["cat"] == "kernel"]


def main() -> None:
    """Print a line for each pair that the folder holds."""
    folder = Path(sys.argv[1])
    for replay, partner in PAIRS:
        paths = [next(folder.rglob(f"{name}.json.gz"), None) for name in (replay, partner)]
        if paths[0] is None or paths[1] is None:
            continue
        trace, other = events(paths[0]), launched_names(events(paths[1]))
        graphs = replays(trace)
        total = sum(each["dur"] for each in trace if each["cat"] in WORK)
        inside = sum(each["dur"] for graph in graphs.values() for each in graph)
        shares = []
        for graph in graphs.values():
            names = [each["name"] for each in graph if each["cat"] == "kernel"]
            blocks = SequenceMatcher(None, names, other, autojunk=False).get_matching_blocks()
            shares.append(sum(block.size for block in blocks) / len(names))
        print(f"{replay}: {inside / total:.1%} of device time in replays", end=", ")
        print(f"{min(shares):.1%} of the kernels of each in order in {partner}")


if __name__ == "__main__":
    main()
