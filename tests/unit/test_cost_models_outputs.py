"""Kineto records no outputs: what models derive of them is checked against what torch returns.

Each operator runs under torch.profiler; bytes_written must be the bytes of all tensors it
returned, and bytes_read those of its tensor arguments where the operator reads all of them.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import parse_call
from gpuprof.roofline.cost_models.cost import Cost

aten = torch.ops.aten


@dataclass(frozen=True)
class Case:
    op: Any
    arguments: Callable[[], tuple[Any, ...]]
    # False where the operator reads less than its arguments (gathers) or has outputs of no use.
    reads_all: bool = True
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"{self.op}".replace("aten.", "")


def f(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(*shape).to(dtype)


def i(*shape: int, top: int = 4, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.randint(0, top, shape, dtype=dtype)


def b(*shape: int) -> Tensor:
    return torch.rand(*shape) < 0.5


half, bf16, double = torch.float16, torch.bfloat16, torch.float64
CASES = (
    Case(aten.mm.default, lambda: (f(3, 4), f(4, 5))),
    Case(aten.addmm.default, lambda: (f(5), f(3, 4), f(4, 5))),
    Case(aten.bmm.default, lambda: (f(2, 3, 4), f(2, 4, 5))),
    Case(aten.baddbmm.default, lambda: (f(2, 3, 5), f(2, 3, 4), f(2, 4, 5))),
    Case(aten.mv.default, lambda: (f(3, 4), f(4))),
    Case(aten.dot.default, lambda: (f(7), f(7))),
    Case(aten._int_mm.default, lambda: (i(32, 16, dtype=torch.int8), i(16, 24, dtype=torch.int8))),
    Case(aten.convolution.default, lambda: (
        f(2, 4, 9, 8), f(6, 2, 3, 2), f(6), [2, 1], [1, 0], [1, 2], False, [0, 0], 2,
    )),
    Case(aten.convolution.default, lambda: (
        f(2, 6, 5, 5), f(6, 3, 3, 3), f(9), [2, 2], [1, 1], [2, 1], True, [1, 0], 3,
    ), name="transposed convolution"),
    Case(aten.convolution_backward.default, lambda: (
        f(2, 6, 7, 7), f(2, 4, 9, 9), f(6, 4, 3, 3), [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
        [True, True, True],
    )),
    Case(aten.convolution_backward.default, lambda: (
        f(2, 6, 7, 7), f(2, 4, 9, 9), f(6, 4, 3, 3), [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
        [False, True, False],
    ), reads_all=False, name="convolution weight gradient"),
    Case(aten._softmax.default, lambda: (f(3, 7), 1, False)),
    Case(aten._log_softmax.default, lambda: (f(3, 7, dtype=double), 0, False)),
    Case(aten._softmax_backward_data.default, lambda: (f(3, 7), f(3, 7), 1, torch.float32)),
    Case(aten.native_layer_norm.default, lambda: (f(3, 5, 8), [8], f(8), f(8), 1e-5)),
    Case(aten.native_layer_norm.default, lambda: (f(3, 5, 8), [5, 8], None, None, 1e-5),
         name="layer norm without affine"),
    Case(aten.native_layer_norm_backward.default, lambda: (
        f(3, 5, 8), f(3, 5, 8), [8], f(3, 5, 1), f(3, 5, 1), f(8), f(8), [True, True, True],
    ), reads_all=False),
    Case(aten.native_group_norm.default, lambda: (f(2, 6, 4), f(6), f(6), 2, 6, 4, 3, 1e-5)),
    Case(aten.native_batch_norm.default, lambda: (
        f(4, 3, 5), f(3), f(3), None, None, True, 0.1, 1e-5,
    )),
    Case(aten.native_batch_norm_backward.default, lambda: (
        f(4, 3, 5), f(4, 3, 5), f(3), None, None, f(3), f(3), True, 1e-5, [True, True, True],
    )),
    Case(aten.add.Tensor, lambda: (f(4, 5), f(5))),
    Case(aten.add.Tensor, lambda: (f(4, 5, dtype=half), f(5))),
    Case(aten.add.Tensor, lambda: (i(4, 5), 2), name="integer plus integer number"),
    Case(aten.add.Tensor, lambda: (i(4, 5), 2.5), name="integer plus floating number"),
    Case(aten.mul.Tensor, lambda: (f(4, 5, dtype=bf16), torch.tensor(2.0)), name="0-dim factor"),
    Case(aten.mul.Tensor, lambda: (b(4, 5), i(4, 5, dtype=torch.int32)), name="bool times int32"),
    Case(aten.div.Tensor, lambda: (i(4, 5), i(4, 5))),
    Case(aten.rsub.Scalar, lambda: (f(4, 5), 1)),
    Case(aten.mul_.Tensor, lambda: (f(4, 5, dtype=half), f(4, 5)), name="in place keeps dtype"),
    Case(aten.exp.default, lambda: (i(4, 5),)),
    Case(aten.sigmoid.default, lambda: (f(4, 5, dtype=bf16),)),
    Case(aten.gelu.default, lambda: (f(4, 5),)),
    Case(aten.gelu_backward.default, lambda: (f(4, 5), f(4, 5))),
    Case(aten.silu_backward.default, lambda: (f(4, 5), f(4, 5))),
    Case(aten.threshold_backward.default, lambda: (f(4, 5), f(4, 5), 0)),
    Case(aten.elu_backward.default, lambda: (f(4, 5), 1.0, 1, 1, False, f(4, 5))),
    Case(aten.pow.Tensor_Scalar, lambda: (f(4, 5), 2)),
    Case(aten.eq.Tensor, lambda: (f(4, 5), f(5))),
    Case(aten.isnan.default, lambda: (f(4, 5),), name="isnan"),
    Case(aten.where.self, lambda: (b(4, 5), f(4, 5), f(4, 1))),
    Case(aten.masked_fill.Scalar, lambda: (f(4, 5), b(4, 5), 0), name="masked_fill"),
    Case(aten.clamp.default, lambda: (f(4, 5), 0.1, 0.9)),
    Case(aten.addcmul.default, lambda: (f(4, 5), f(4, 5), f(5))),
    Case(aten.lerp.Scalar, lambda: (f(4, 5), f(4, 5), 0.3)),
    Case(aten.native_dropout.default, lambda: (f(4, 5), 0.5, True)),
    Case(aten.glu.default, lambda: (f(4, 6), -1)),
    Case(aten.sum.default, lambda: (f(4, 5),), name="sum of all"),
    Case(aten.sum.dim_IntList, lambda: (f(4, 5, 6), [0, -1], True)),
    Case(aten.sum.dim_IntList, lambda: (i(4, 5, dtype=torch.int32), [1]), name="integer sum"),
    Case(aten.sum.dim_IntList, lambda: (f(4, 5, dtype=half), [1], False), name="half sum"),
    Case(aten.mean.dim, lambda: (f(4, 5), [0])),
    Case(aten.amax.default, lambda: (f(4, 5), [1])),
    Case(aten.max.dim, lambda: (f(4, 5), 1)),
    Case(aten.argmax.default, lambda: (f(4, 5), 1)),
    Case(aten.argmax.default, lambda: (f(4, 5),), name="argmax of all"),
    Case(aten.any.dim, lambda: (b(4, 5), 1)),
    Case(aten.linalg_vector_norm.default, lambda: (f(4, 5), 2, [1])),
    Case(aten.var.correction, lambda: (f(4, 5), [1])),
    Case(aten.var_mean.correction, lambda: (f(4, 5), [0], )),
    Case(aten.cumsum.default, lambda: (i(4, 5, dtype=torch.int32), 1)),
    Case(aten.sort.default, lambda: (f(4, 5),)),
    Case(aten.topk.default, lambda: (f(4, 9), 3)),
    Case(aten.copy_.default, lambda: (f(4, 5, dtype=half), f(4, 5)), reads_all=False),
    Case(aten.index_select.default, lambda: (f(9, 5), 0, i(4)), reads_all=False),
    Case(aten.gather.default, lambda: (f(9, 5), 0, i(4, 5)), reads_all=False),
    Case(aten.embedding.default, lambda: (f(9, 5), i(2, 3)), reads_all=False),
    Case(aten.flip.default, lambda: (f(4, 5), [0])),
    Case(aten.tril.default, lambda: (f(5, 5),)),
    Case(aten.max_pool2d_with_indices.default, lambda: (
        f(2, 3, 9, 10), [3, 2], [2, 2], [1, 0], [1, 1], True,
    )),
    Case(aten.avg_pool2d.default, lambda: (f(2, 3, 9, 9), [2, 2], [], [0, 0], True)),
    Case(aten._adaptive_avg_pool2d.default, lambda: (f(2, 3, 8, 8), [2, 4])),
    Case(aten.upsample_nearest2d.default, lambda: (f(2, 3, 4, 4), [8, 8])),
    Case(aten.upsample_bilinear2d.default, lambda: (f(2, 3, 4, 4), [7, 9], False)),
    Case(aten.upsample_nearest2d_backward.default, lambda: (f(2, 3, 8, 8), [8, 8], [2, 3, 4, 4])),
    Case(aten.nll_loss_forward.default, lambda: (f(6, 4), i(6), None, 1, -100), reads_all=False),
    Case(aten.nll_loss_forward.default, lambda: (f(6, 4), i(6), None, 0, -100), reads_all=False,
         name="nll_loss without reduction"),
    Case(aten._scaled_dot_product_flash_attention_for_cpu.default, lambda: (
        f(2, 4, 8, 16), f(2, 4, 9, 16), f(2, 4, 9, 16),
    )),
    Case(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, lambda: (
        f(2, 4, 8, 16), f(2, 4, 8, 16), f(2, 4, 9, 16), f(2, 4, 9, 16), f(2, 4, 8, 16), f(2, 4, 8),
        0.0, False,
    )),
)  # fmt: skip


def recorded_cost(run: Callable[[], Any], name: str, path: Path) -> tuple[Cost | None, Any]:
    """The cost of the outermost call of `name`, and what it returned."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        result = run()
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    args = next(event["args"] for event in events if event.get("name") == name)
    fields = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    call = parse_call(name, *(json.dumps(args[field]) for field in fields))
    assert call is not None
    return cost_of(call), result


def tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from tensors(value)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_are_those_of_the_tensors_torch_read_and_returned(case: Case, tmp_path: Path) -> None:
    torch.manual_seed(0)
    arguments = case.arguments()
    cost, result = recorded_cost(
        lambda: case.op(*arguments), case.op.name().split(".")[0], tmp_path / "trace.json"
    )
    assert cost is not None
    assert cost.bytes_written == sum(t.nbytes for t in tensors(result) if t.numel())
    if case.reads_all:
        read = sum(t.nbytes for t in tensors(arguments))
        # A number beside a tensor is recorded as a 0-dim tensor of 8 bytes.
        assert cost.bytes_read is not None
        assert cost.bytes_read - read in (0, 8)
