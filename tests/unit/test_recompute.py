"""Activation checkpointing: the operators that its second forward ran are told from the rest."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from gpuprof.collectors import kineto, schema
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.work.op_tree import op_phases

DATA = Path(__file__).parents[1] / "data" / "kineto"
PUBLIC = Path(__file__).resolve().parents[3] / "shared" / "data" / "public" / "kineto"


def record(path: Path, step: Callable[[], object], *, with_stack: bool = False) -> Capture:
    """One step as torch's profiler records it."""
    activities = [ProfilerActivity.CPU]
    with profile(activities=activities, record_shapes=True, with_stack=with_stack) as profiler:
        step()
    profiler.export_chrome_trace(str(path))
    return kineto.read(path)


def repeated(capture: Capture) -> pl.DataFrame:
    """The operators that op_phases calls repeated."""
    return capture.ops.filter(op_phases(capture)["recompute"])


def products(ops: pl.DataFrame) -> list[str]:
    return ops.filter(pl.col("name") == "aten::addmm")["input_dims"].to_list()


def without_stacks(capture: Capture) -> Capture:
    ops = capture.ops.with_columns(recompute=pl.lit(None, dtype=schema.OPS["recompute"]))
    return Capture(capture.manifest, capture.processes, **{**capture.tables(), "ops": ops})


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16), torch.nn.Tanh()
        )
        self.head = torch.nn.Linear(16, 4)


FIRST = "[[32], [8, 16], [16, 32], [], []]"
SECOND = "[[16], [8, 32], [32, 16], [], []]"


@pytest.mark.parametrize("with_stack", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_the_second_forward_of_a_checkpoint(
    tmp_path: Path, reentrant: bool, with_stack: bool
) -> None:
    model, inputs = Model(), torch.randn(8, 16, requires_grad=True)

    def step() -> None:
        for _ in range(2):
            hidden = checkpoint(model.block, inputs, use_reentrant=reentrant)
            model.head(hidden).square().mean().backward()

    capture = record(tmp_path / "trace.json", step, with_stack=with_stack)
    again = repeated(capture)
    assert products(again) == [FIRST, SECOND] * 2
    # Once before and once after; the head's product runs once, and mm is the backward's alone.
    assert products(capture.ops).count(FIRST) == 4
    assert "aten::gelu" in again["name"].to_list()
    assert not {"aten::mm", "aten::gelu_backward", "aten::sum"} & set(again["name"])


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_backward_pass_without_checkpoints_repeats_nothing(
    tmp_path: Path, create_graph: bool
) -> None:
    model, inputs = Model(), torch.randn(8, 16, requires_grad=True)

    def step() -> None:
        loss = model.head(model.block(inputs)).square().mean()
        (slope,) = torch.autograd.grad(loss, inputs, create_graph=create_graph)
        if create_graph:
            (slope * slope).sum().backward()

    capture = record(tmp_path / "trace.json", step)
    assert capture.ops["sequence"].is_not_null().any()
    assert repeated(capture).is_empty()


def test_nested_checkpoints_repeat_the_inner_one_twice(tmp_path: Path) -> None:
    model, inputs = Model(), torch.randn(8, 16, requires_grad=True)

    def outer(hidden: torch.Tensor) -> torch.Tensor:
        inner = checkpoint(model.block, hidden, use_reentrant=True)
        assert isinstance(inner, torch.Tensor)
        return inner.tanh()

    def step() -> None:
        hidden = checkpoint(outer, inputs, use_reentrant=True)
        model.head(hidden).square().mean().backward()

    assert products(repeated(record(tmp_path / "trace.json", step))) == [FIRST, SECOND] * 2


def test_the_case_recompute_by_its_python_stacks() -> None:
    capture = kineto.read(DATA / "recompute.json")
    assert op_phases(capture)["recompute"].to_list() == [False, True, False, False, False]


def test_the_tree_alone_finds_what_a_public_trace_s_stacks_tell() -> None:
    path = PUBLIC / "tracelens_mi300_resnet_act_checkpoint.json.gz"
    if not path.exists():
        pytest.skip("the public traces of ../shared are absent")
    capture = kineto.read(path)
    told = capture.ops["recompute"]
    assert told.sum() == 1908
    assert op_phases(without_stacks(capture))["recompute"].equals(told)
