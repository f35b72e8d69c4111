"""Models against an H100's own counters (Nsight Compute, recordings/scripts/ops.py)."""

import csv
import gzip
import io
import re
from functools import cache
from pathlib import Path

import pytest

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import MathMode, OpCall, Scalar, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.dtypes import named

SHARED = Path(__file__).resolve().parents[3] / "shared"
COUNTERS = SHARED / "data" / "recordings" / "h100_ops_ncu_raw.csv.gz"
pytestmark = pytest.mark.skipif(not COUNTERS.exists(), reason="the recordings are not here")

TENSOR = re.compile(r"sm__ops_path_tensor_src_(?:\w+_dst_fp32|fp16|fp64|fp8_sparsity_off)\.sum")


@cache
def counters() -> dict[str, dict[str, str]]:
    """Metrics of the kernel inside each NVTX range."""
    text = gzip.decompress(COUNTERS.read_bytes()).decode()
    rows = list(csv.reader(io.StringIO(text[text.index('"ID"') :])))
    ranges = next(i for i, column in enumerate(rows[0]) if "Push/Pop" in column)
    found = ((re.search(r"domain>:(\w+)", row[ranges]), row) for row in rows[2:])
    return {match[1]: dict(zip(rows[0], row, strict=True)) for match, row in found if match}


def tensor_operations(name: str) -> int:
    values = [v for metric, v in counters()[name].items() if TENSOR.fullmatch(metric)]
    return sum(int(value.replace(",", "")) for value in values if value)


def dram_read(name: str) -> float:
    return float(counters()[name]["dram__bytes_read.sum"].replace(",", "")) * 1e6


def tensor(dtype: str, *shape: int) -> Tensor:
    return Tensor(shape, named(dtype))


def cost(name: str, *arguments: Tensor | Scalar | None, mode: MathMode | None = None) -> Cost:
    result = cost_of(OpCall(name, arguments, mode or MathMode()))
    assert result is not None
    return result


def square(dtype: str, size: int) -> Cost:
    matrix = tensor(dtype, size, size)
    return cost("aten::mm", matrix, matrix, mode=MathMode(tf32_matmul=True))


def attention(causal: bool) -> Cost:
    q = tensor("bfloat16", 2, 32, 2048, 128)
    arguments = (None, Scalar("True"), Scalar("0."), Scalar(str(causal)), Scalar("False"), None)
    return cost("aten::_scaled_dot_product_cudnn_attention", q, q, q, *arguments)


def convolution() -> Cost:
    return cost(
        "aten::cudnn_convolution",
        tensor("float16", 32, 64, 56, 56),
        tensor("float16", 128, 64, 3, 3),
        *map(Scalar, ("[1, 1]", "[1, 1]", "[1, 1]", "1")),
    )


def scaled() -> Cost:
    matrix, scale = tensor("float8_e4m3fn", 4096, 4096), tensor("float32")
    return cost("aten::_scaled_mm", matrix, matrix, scale, scale, None, None, Scalar("15"))


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("gemm_bf16_4096", square("bfloat16", 4096)),
        ("gemm_tf32_2048", square("float32", 2048)),
        ("gemm_fp64_1024", square("float64", 1024)),
        ("gemm_fp8_4096", scaled()),
        ("conv3x3_nhwc", convolution()),
        ("sdpa_full_2048", attention(causal=False)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tensor_operations_equal_what_the_hardware_counted(name: str, model: Cost) -> None:
    assert model.matmul_flops() == tensor_operations(name)


def test_causal_attention_executes_whole_tiles_of_the_pairs_it_keeps() -> None:
    executed, model = tensor_operations("sdpa_causal_2048"), attention(causal=True)
    kept = model.matmul_flops()
    assert kept is not None
    assert model.full_attention_flops is not None
    # The kernel skips tiles of 128 keys: a row of tiles reaches up to a tile past the diagonal.
    assert kept < executed <= kept * (1 + 128 / 2048 + 0.001)
    assert executed < model.full_attention_flops


SQUARE = tensor("bfloat16", 8192, 8192)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("softmax_8192", cost("aten::_softmax", SQUARE, Scalar("-1"), Scalar("False"))),
        ("gelu_8192", cost("aten::gelu", SQUARE, Scalar("none"))),
        (
            "triton_add_64M",
            cost("aten::add", tensor("float32", 2**26), tensor("float32", 2**26), Scalar("1")),
        ),
        ("conv3x3_nhwc", convolution()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_compulsory_reads_of_streaming_kernels_are_within_three_percent(
    name: str, model: Cost
) -> None:
    assert dram_read(name) == pytest.approx(model.bytes_read, rel=0.03)


def test_layer_norm_reads_its_input_about_twice_and_the_model_once() -> None:
    model = cost("aten::native_layer_norm", SQUARE, Scalar("[8192]"), None, None, Scalar("1e-05"))
    assert model.bytes_read == SQUARE.bytes
    assert 1.8 < dram_read("layernorm_8192") / (model.bytes_read or 1) < 2.0
