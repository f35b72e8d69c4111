"""Does `gpuprof explain` say of attention what torch itself says, and do names mean what they say?

    python tests/gpu/visit_dispatch.py

Of many arguments of scaled_dot_product_attention torch's own answers (torch.backends.cuda
.can_use_flash_attention and its like) are compared with the conditions of attention.toml, which see
only what the profiler records. Then products of known types and layouts run, and the names of
their kernels are compared with both. Exits 1 where one differs.
"""

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.opening import open_traces
from gpuprof.roofline.cost_models.call import parse_call
from gpuprof.roofline.explain.attention import OPERATOR, attention_dispatch
from gpuprof.roofline.kernel_names.decode import decode
from gpuprof.roofline.work.attribution import attribute

CUDA = "cuda"
BACKENDS = {
    "flash": torch.backends.cuda.can_use_flash_attention,
    "memory-efficient": torch.backends.cuda.can_use_efficient_attention,
    "cuDNN": torch.backends.cuda.can_use_cudnn_attention,
}
TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


def arguments() -> Iterator[dict[str, Any]]:
    """Calls that violate one condition or another."""
    plain = {"heads": (8, 8), "lengths": (128, 128), "size": 64, "dtype": torch.bfloat16}
    yield plain
    for changed in (
        {"dtype": torch.float32}, {"dtype": torch.float16}, {"dtype": torch.float64},
        {"size": 60}, {"size": 256}, {"size": 320}, {"size": 36, "dtype": torch.float32},
        {"lengths": (1, 128)}, {"lengths": (1, 128), "is_causal": True},
        {"lengths": (128, 1)}, {"heads": (8, 2)}, {"heads": (8, 2), "enable_gqa": True},
        {"masked": 2}, {"masked": 4}, {"masked": 3}, {"dropout_p": 0.1}, {"dropout_p": 0.125},
        {"transposed": True}, {"is_causal": True},
    ):  # fmt: skip
        yield plain | changed


def tensors(given: dict[str, Any]) -> tuple[Any, ...]:
    """Query, key, value and the mask or None."""
    batch, (queries, keys) = 2, given["lengths"]
    shapes = [(batch, given["heads"][0], queries)] + [(batch, given["heads"][1], keys)] * 2
    made = [torch.randn(*shape, given["size"], device=CUDA).to(given["dtype"]) for shape in shapes]
    if given.get("transposed"):
        made = [each.transpose(-1, -2).contiguous().transpose(-1, -2) for each in made]
    axes = {2: (queries, keys), 3: (8, queries, keys), 4: (1, 1, queries, keys)}
    masked = given.get("masked")
    mask = torch.ones(axes[masked], dtype=torch.bool, device=CUDA) if masked else None
    return (*made, mask)


def recorded(work: Callable[[], Any]) -> Capture:
    """The capture of one call."""
    work()
    with torch.profiler.profile(record_shapes=True) as profile:
        work()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        return attribute(open_traces([path]))


def compare_attention() -> int:
    """Print and count what differs from torch."""
    wrong = 0
    for given in arguments():
        query, key, value, mask = tensors(given)
        options = {name: given[name] for name in ("dropout_p", "is_causal") if name in given}
        grouped = given.get("enable_gqa", False)
        parameters = torch.backends.cuda.SDPAParams(
            query, key, value, mask,
            options.get("dropout_p", 0.0), options.get("is_causal", False), grouped,
        )  # fmt: skip
        try:
            attend = torch.nn.functional.scaled_dot_product_attention
            call = partial(attend, query, key, value, mask, enable_gqa=grouped, **options)
            capture = recorded(call)
        except RuntimeError as error:
            print(f"{given}: torch refuses it: {str(error).splitlines()[0]}")
            continue
        (row,) = capture.ops.filter(pl.col("name") == OPERATOR).head(1).iter_rows(named=True)
        columns = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")
        arguments_recorded = parse_call(*(row[column] for column in columns))
        device = capture.processes[0].fingerprint.devices[0]
        names = capture.ops["name"].to_list()
        found = attention_dispatch(arguments_recorded, names, device.compute_capability)
        assert found is not None, names
        ours = {backend.name: backend for backend in found.others}
        for name, can_use in BACKENDS.items():
            allowed = can_use(parameters, False)
            if name == found.ran:
                said = True
            elif ours[name].violated:
                said = False
            else:
                said = None if ours[name].unknown else True
            differs = said is not None and said != allowed
            wrong += differs
            mark = "WRONG" if differs else "ok"
            violated = [each.text for each in ours[name].violated] if name in ours else []
            print(f"{mark:5} {name}: torch {allowed}, here {said} {violated} {given}")
    return wrong


def compare_products() -> int:
    """Print and count names of kernels that say another type or layout than the operands have."""
    wrong = 0
    layouts = itertools.product((False, True), repeat=2)
    for (dtype, precision), (left_t, right_t) in itertools.product(TYPES.items(), layouts):
        left = torch.randn(1024, 2048, device=CUDA).to(dtype)
        right = torch.randn(2048, 4096, device=CUDA).to(dtype)
        left = left.t().contiguous().t() if left_t else left
        right = right.t().contiguous().t() if right_t else right
        capture = recorded(partial(torch.mm, left, right))
        products = capture.kernels.join(
            capture.ops.filter(pl.col("name") == "aten::mm").select("op_id", "input_strides"),
            on="op_id",
        )
        for name, strides in products.select("name", "input_strides").iter_rows():
            told = decode(name)
            if told is None or told.function != "gemm" or "split-K parts" in told.algorithm:
                print(f"?     {name}: {told}")
                continue
            flags = ["N" if each[1] == 1 else "T" for each in json.loads(strides)[:2]]
            layout = flags[1] + flags[0]
            same = told.precision in (precision, "") and told.layout in (layout, "")
            wrong += not same
            print(f"{'ok' if same else 'WRONG':5} {precision} {layout}: {name} {told}")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if compare_attention() + compare_products() else 0)
