"""The leaf operators of CPU runs: each heavy operator once, none overlapping."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gpuprof.collectors import kineto
from gpuprof.collectors.call_tree.cpu_leaf_ops import leaves
from gpuprof.collectors.capture import Capture


def tree(*rows: tuple[str, int | None]) -> pl.DataFrame:
    """Operators of one thread: (name, parent) in the order of a walk."""
    names, parent = zip(*rows, strict=True)
    count = len(rows)
    return pl.DataFrame(
        {
            "op_id": range(count),
            "parent_id": pl.Series(parent, dtype=pl.Int64),
            "name": names,
            "process": [1] * count,
            "thread": [1] * count,
        }
    )


def leaf_names(*rows: tuple[str, int | None]) -> list[str]:
    ops = tree(*rows)
    return ops.filter(pl.Series(leaves(ops)))["name"].to_list()


def test_a_whole_operator_is_the_leaf_with_what_it_calls() -> None:
    assert leaf_names(
        ("aten::linear", None),
        ("aten::t", 0),
        ("aten::addmm", 0),
        ("aten::expand", 2),
        ("aten::copy_", 2),
    ) == ["aten::addmm"]


def test_an_operator_without_work_below_it_is_a_leaf_whatever_its_name() -> None:
    assert leaf_names(("mylib::fused", None), ("aten::empty", 0), ("aten::view", 0)) == [
        "mylib::fused"
    ]


def test_an_unknown_operator_above_work_is_not_a_leaf() -> None:
    assert leaf_names(("mylib::block", None), ("aten::relu", 0), ("mylib::inner", 0)) == [
        "aten::relu",
        "mylib::inner",
    ]


def test_views_and_autograd_nodes_are_never_leaves() -> None:
    assert (
        leaf_names(
            ("autograd::engine::evaluate_function: TBackward0", None),
            ("TBackward0", 0),
            ("aten::t", 1),
            ("aten::detach", None),
            ("detach", 3),
            ("aten::empty_strided", None),
            ("torch::autograd::AccumulateGrad", None),
        )
        == []
    )


def test_a_copy_below_a_reshape_is_the_leaf() -> None:
    assert leaf_names(("aten::reshape", None), ("aten::clone", 0), ("aten::copy_", 1)) == [
        "aten::copy_"
    ]


def test_threads_have_trees_of_their_own() -> None:
    ops = tree(("aten::linear", None), ("aten::relu", None), ("aten::addmm", 0)).with_columns(
        thread=pl.Series([1, 2, 1])
    )
    assert leaves(ops).tolist() == [False, True, True]


class Network(nn.Module):
    """One of each heavy layer that the roofline models."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.norm = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32, bias=False)
        self.convolution = nn.Conv1d(32, 32, 3, padding=1)
        self.batch_norm = nn.BatchNorm1d(32)
        self.group_norm = nn.GroupNorm(4, 32)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, 2, 16).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        attention = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, length, width))
        y = self.group_norm(self.batch_norm(self.convolution(x.transpose(1, 2))))
        x = x + F.gelu(y).transpose(1, 2)
        return self.head(torch.matmul(F.softmax(torch.bmm(x, x.mT), -1), x))


def record(step: Callable[[], None], path: Path) -> Capture:
    step()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        step()
    profiler.export_chrome_trace(str(path))
    return kineto.read(path)


WRAPPERS = ("aten::linear", "aten::conv1d", "aten::matmul", "aten::layer_norm")
OPTIMIZERS = {
    "default": ({}, None),
    "foreach": ({"foreach": True}, None),
    "loop": ({"foreach": False}, None),
    "fused": ({"fused": True}, "aten::_fused_adamw_"),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.filterwarnings("ignore")
def test_every_heavy_operator_of_a_training_step_is_one_leaf(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    network = Network()
    options, fused = OPTIMIZERS[kind]
    optimizer = torch.optim.AdamW(network.parameters(), **options)
    tokens = torch.randint(0, 50, (2, 16))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    # One whose thread waits for a core between two calls looks as if it worked itself, and a range
    # around operators as if it did so before and after one: on a busy host in every third step.
    for _ in range(12):
        kernels = record(step, tmp_path / "trace.json").kernels
        if not kernels["name"].is_in(WRAPPERS).any() and kernels["op_id"].is_unique().all():
            break
    assert set(kernels["kind"]) == {"op"}
    # Nothing overlaps on a thread, and each leaf is an operator of its own.
    assert kernels["op_id"].n_unique() == kernels.height
    for _, thread in kernels.sort("start_ns").group_by("stream", maintain_order=True):
        assert (thread["start_ns"][1:] >= thread["end_ns"][:-1]).all()
    heavy = {
        "aten::addmm": 2,
        # out, and two products for each of the three linear layers' backward.
        "aten::mm": 7,
        # The scores and their product with the values, and two each in the backward.
        "aten::bmm": 6,
        "aten::native_layer_norm": 1,
        "aten::native_layer_norm_backward": 1,
        "aten::native_batch_norm": 1,
        "aten::native_batch_norm_backward": 1,
        "aten::native_group_norm": 1,
        "aten::native_group_norm_backward": 1,
        "aten::_scaled_dot_product_flash_attention_for_cpu": 1,
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 1,
        "aten::convolution_backward": 1,
        "aten::_softmax": 1,
        "aten::_log_softmax": 1,
        "aten::embedding_dense_backward": 1,
        "aten::gelu": 1,
        **({fused: 1} if fused else {}),
    }
    found = Counter(kernels["name"].to_list())
    assert {name: found[name] for name in heavy} == heavy
    assert found["aten::mkldnn_convolution"] + found["aten::_slow_conv2d_forward"] == 1
    assert not found.keys() & set(WRAPPERS)
