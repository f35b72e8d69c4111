"""Inductor's sources: what they tell of a kernel's arguments, and what that changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuprof.collectors import kineto
from gpuprof.roofline.analyze import analyze

NAME = "triton_poi_fused_add_mul_0"
SOURCE = """
import triton

@triton_heuristics.pointwise(size_hints={'x': 512}, triton_meta={'signature': {}})
@triton.jit
def triton_poi_fused_add_mul_0(in_out_ptr0, in_ptr0, in_ptr1, xnumel, XBLOCK : tl.constexpr):
    xnumel = 512
    tmp0 = tl.load(in_out_ptr0 + (x2), xmask).to(tl.float32)
    tmp1 = tl.load(in_ptr0 + (x0), xmask, eviction_policy='evict_last').to(tl.float32)
    tmp3 = tl.load(in_ptr1 + (x2), xmask).to(tl.float32)
    tmp5 = tl.load(in_ptr1 + (x2 + 64), xmask).to(tl.float32)
    tl.store(in_out_ptr0 + (x2), tmp4, xmask)
"""


def event(**changed: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": 1, "ts": 1000, "dur": 10, **changed}


def trace(path: Path, kernel_file: object, **changed: Any) -> Path:
    """A trace of one generated kernel: two tensors of 512 halves and one of 64, then xnumel."""
    arguments = {
        "External id": 1,
        "Input Dims": [[8, 64], [64], [8, 64], []],
        "Input type": ["c10::Half", "c10::Half", "c10::Half", "Scalar"],
        "Input Strides": [[64, 1], [1], [64, 1], []],
        "Concrete Inputs": ["", "", "", "512"],
        "kernel_file": kernel_file,
    }
    device = {"correlation": 7, "device": 0, "stream": 7}
    events = [
        event(cat="cpu_op", name=NAME, args=arguments, **changed),
        event(cat="cuda_driver", name="cuLaunchKernel", ts=1005, dur=1, args={"correlation": 7}),
        event(cat="kernel", name=NAME, pid=0, tid=7, ts=1010, dur=5, args=device),
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "cabc.py"
    path.write_text(SOURCE)
    return path


def test_arguments_have_the_names_of_the_kernel_s_definition(tmp_path: Path, source: Path) -> None:
    ops = kineto.read(trace(tmp_path / "trace.json", str(source))).ops
    assert ops["argument_names"].to_list() == ['["in_out_ptr0","in_ptr0","in_ptr1","xnumel"]']
    assert ops["argument_accesses"].to_list() == ["[1,1,2,0]"]


def test_names_tell_what_a_kernel_writes(tmp_path: Path, source: Path) -> None:
    (named,) = analyze(kineto.read(trace(tmp_path / "named.json", str(source)))).ops
    assert (named.bytes_read, named.bytes_written) == (2 * (512 + 64 + 512), 2 * 512)
    assert not any("outputs" in text for text in named.assumptions)
    (guessed,) = analyze(kineto.read(trace(tmp_path / "guessed.json", "/gone/cabc.py"))).ops
    assert (guessed.bytes_read, guessed.bytes_written) == (2 * (512 + 64), 2 * 512)
    assert any("outputs" in text for text in guessed.assumptions)


@pytest.mark.parametrize("kernel_file", ["", "/gone/cabc.py", "a\0b.py", "/etc/hostname", None, 5])
def test_files_that_are_not_there_leave_the_names_unknown(
    tmp_path: Path, kernel_file: object
) -> None:
    ops = kineto.read(trace(tmp_path / "trace.json", kernel_file)).ops
    assert ops["argument_names"].to_list() == [None]
    assert ops["name"].to_list() == [NAME]


def test_a_source_of_another_kernel_tells_nothing(tmp_path: Path, source: Path) -> None:
    source.write_text(SOURCE.replace(NAME, "triton_poi_fused_sub_1"))
    ops = kineto.read(trace(tmp_path / "trace.json", str(source))).ops
    assert ops["argument_names"].to_list() == [None]
    # Nor does one beside it.
    source.write_text(SOURCE + SOURCE.replace(NAME, "triton_poi_fused_sub_1"))
    ops = kineto.read(trace(tmp_path / "trace.json", str(source))).ops
    assert ops["argument_accesses"].to_list() == ["[1,1,2,0]"]


def test_files_that_are_no_sources_are_not_read(tmp_path: Path, source: Path) -> None:
    ops = kineto.read(trace(tmp_path / "trace.json", str(source.rename(tmp_path / "cabc.txt")))).ops
    assert ops["argument_names"].to_list() == [None]
    folder = tmp_path / "folder.py"
    folder.mkdir()
    ops = kineto.read(trace(tmp_path / "trace.json", str(folder))).ops
    assert ops["argument_names"].to_list() == [None]
