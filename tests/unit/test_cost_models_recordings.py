"""Models on recorded H100 traces: known totals, and how much device time they cover."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import OpCall, parse_call
from gpuprof.roofline.cost_models.cost import Cost

SHARED = Path(__file__).resolve().parents[3] / "shared"
RECORDINGS, CASES = SHARED / "data" / "recordings", SHARED / "cases"
pytestmark = pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings are not here")

STEPS, LAYER = 3, 4 * 4096**2 + 3 * 4096 * 11008


def load(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return events


def parsed(event: dict[str, Any], kernels: list[str]) -> OpCall | None:
    args = event["args"]
    fields = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    texts = (json.dumps(args[field]) if field in args else None for field in fields)
    return parse_call(event["name"], *texts, kernels=kernels)


def launching_ops(name: str) -> list[tuple[str, int, Cost | None]]:
    """(operator, device time in ns, cost) of each call that launched a kernel itself."""
    events = load(RECORDINGS / name)
    launched = defaultdict(list)
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            launched[event["args"]["External id"]].append(event)
    result = []
    for event in events:
        kernels = launched.get(event.get("args", {}).get("External id"))
        if event.get("cat") == "cpu_op" and kernels:
            call = parsed(event, [kernel["name"] for kernel in kernels])
            time = round(1000 * sum(kernel["dur"] for kernel in kernels))
            result.append((event["name"], time, None if call is None else cost_of(call)))
    return result


def products(ops: list[tuple[str, int, Cost | None]], *names: str) -> int:
    return sum(cost.matmul_flops() or 0 for op, _, cost in ops if op in names and cost is not None)


def test_inference_block_has_its_closed_form() -> None:
    ops = launching_ops("h100_block_infer_fp16.json.gz")
    assert products(ops, "aten::mm") == STEPS * 2 * 2048 * LAYER
    pairs = 2048 * 2049 // 2
    assert products(ops, "aten::_cudnn_attention_forward") == STEPS * 32 * pairs * 4 * 128


def test_training_block_has_twice_the_forward_in_its_backward() -> None:
    ops = launching_ops("h100_block_train_bf16.json.gz")
    forward = STEPS * 2 * 2 * 2048 * LAYER
    assert products(ops, "aten::mm") == 3 * forward
    attended = products(ops, "aten::_cudnn_attention_forward")
    assert 2 * products(ops, "aten::_cudnn_attention_backward") == 5 * attended
    full = [
        cost.full_attention_flops
        for op, _, cost in ops
        if op == "aten::_cudnn_attention_forward" and cost is not None
    ]
    assert full == [2 * 32 * 2048 * 2048 * 4 * 128] * STEPS


@pytest.mark.parametrize("name", ["h100_block_infer_fp16", "h100_block_train_bf16"])
def test_models_cover_the_device_time(name: str) -> None:
    ops = launching_ops(f"{name}.json.gz")
    total = sum(time for _, time, _ in ops)
    with_flops = sum(t for _, t, cost in ops if cost is not None and cost.flops is not None)
    with_bytes = sum(t for _, t, cost in ops if cost is not None and cost.bytes_moved() is not None)
    assert with_flops / total >= 0.97
    assert with_bytes / total >= 0.95


def test_optimizer_bytes_agree_with_the_bandwidth_of_the_device() -> None:
    ops = launching_ops("h100_block_train_bf16.json.gz")
    rates = [
        (cost.bytes_moved() or 0) / time
        for op, time, cost in ops
        if op == "aten::_fused_adamw_" and cost is not None
    ]
    # Bytes per ns: between half of and all of what an H100's memory can do.
    assert len(rates) == STEPS
    assert all(1700 < rate < 3350 for rate in rates)


def costs(case: str) -> list[tuple[str, Cost | None]]:
    return [
        (event["name"], None if (call := parsed(event, [])) is None else cost_of(call))
        for event in load(CASES / case / "trace.json")
        if event["cat"] == "cpu_op"
    ]


def figures(cost: Cost | None) -> tuple[int | None, int | None] | None:
    """(operations of all kinds, bytes moved), or None without a cost."""
    if cost is None:
        return None
    operations = None if cost.flops is None else sum(part.count for part in cost.flops)
    return operations, cost.bytes_moved()


def test_the_case_flops_misc() -> None:
    found = costs("flops-misc")
    assert [(name.split("::")[1], figures(cost)) for name, cost in found] == [
        ("addmm", (65536, 4 * (16 + 64 * 32 + 32 * 16 + 64 * 16))),
        ("bmm", (262144, 16384)),
        ("cat", (0, None)),
        ("add", (1048576, 8392704)),
        ("mul", (1048576, 8388608 + 8)),
        ("_scaled_mm", (33554432, None)),
        ("view", (0, 0)),
        ("t", (0, 0)),
        ("mm", (0, 4 * 0 + 2 * 32 * 16)),
        ("mm", None),
        ("secret_gemm", None),
        ("_foreach_add_", (3072, None)),
    ]
    scaled = found[5][1]
    assert scaled is not None
    assert [part.precision for part in scaled.flops or ()] == ["fp8"]


def test_the_case_recompute_executes_four_products() -> None:
    counts = [cost.matmul_flops() for _, cost in costs("recompute") if cost is not None]
    assert [count for count in counts if count] == [65536] * 4
