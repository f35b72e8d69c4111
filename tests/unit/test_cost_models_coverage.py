"""How much of the device time of real traces has a cost model."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprof.collectors import kineto
from gpuprof.roofline.analyze import analyze

CASE = Path(__file__).parents[1] / "data" / "kineto" / "nan-inf-tokens.json"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TRACES = [
    "recordings/h100_block_train_bf16.json.gz",
    "recordings/h100_block_compile.json.gz",
    "public/kineto/tracelens_h100_owlv2-large.json.gz",
    "public/kineto/tracelens_h100_qwen1.5-0.5b.json.gz",
    "public/kineto/tracelens_mi300_resnet_act_checkpoint.json.gz",
    "public/kineto/tracelens_torch_compile_triton.json.gz",
]


@pytest.mark.parametrize("name", TRACES)
def test_nearly_all_device_time_has_a_model(name: str) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip("the traces of ../shared are absent")
    coverage = analyze(kineto.read(path)).coverage
    shares = (coverage.with_flops, coverage.with_bytes)
    assert None not in shares
    with_flops, with_bytes = (share or 0.0 for share in shares)
    assert with_flops >= 0.97
    assert with_bytes >= 0.95


def test_work_launched_before_a_recording_is_left_out_visibly() -> None:
    path = DATA / "public" / "kineto" / "tracelens_h100_qwen1.5-0.5b.json.gz"
    if not path.exists():
        pytest.skip("the public traces of ../shared are absent")
    coverage = analyze(kineto.read(path)).coverage
    assert coverage.with_op == 1.0
    assert coverage.outside_ns > 0


def numbers(value: Any) -> Iterator[float]:
    """All floating numbers in nested builtins."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)


def test_the_case_nan_inf_tokens_has_no_such_number_in_its_analysis() -> None:
    analysis = analyze(kineto.read(CASE))
    assert analysis.coverage.device_ns == 15_000
    found = list(numbers(msgspec.to_builtins(analysis)))
    assert found
    assert all(map(math.isfinite, found))
