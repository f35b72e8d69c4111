"""Models against an H100's own counters, all the way: report, join, analysis, reasons.

The recording is of Nsight Compute alone (recordings/scripts/ops.py); the trace beside it is written
down here, an operator for each of its launches as torch.profiler would have recorded them.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import ncu, schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.joining.launch_keys import KEY, launch_keys
from gpuprof.collectors.manifest import Device, Fingerprint, Manifest, ProcessInfo
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.measured_figures import UNEXPLAINED, Measured, MeasuredFlops, MeasuredKernel

RAW = Path(__file__).resolve().parents[1] / "data" / "ncu" / "h100_ops_raw.csv.gz"
BF16, FP16, FP32, FP64, FP8 = (
    f'"{name}"' for name in ("c10::BFloat16", "c10::Half", "float", "double", "c10::Float8_e4m3fn")
)
H100 = Device(index=0, kind="cuda", name="NVIDIA H100 80GB HBM3", multiprocessors=132)
_COLUMNS = ("name", "input_dims", "input_types", "concrete_inputs")
SDPA = "aten::_scaled_dot_product_cudnn_attention"
QKV = "[2, 32, 2048, 128]"


def fill(dtype: str, dims: str) -> tuple[str, str, str, str]:
    return ("aten::normal_", f"[{dims}, [], [], []]", f'[{dtype}, "Scalar", "Scalar", ""]', "[]")


def call(name: str, dtype: str, *dims: str, more: str = "") -> tuple[str, str, str, str]:
    """Tensors of one type, then scalars as a list of their texts."""
    scalars = more.split("|") if more else []
    values = [f'"{text}"' for text in scalars]
    return (
        name,
        _listed([*dims, *["[]"] * len(scalars)]),
        _listed([*[dtype] * len(dims), *['"Scalar"'] * len(scalars)]),
        _listed([*['""'] * len(dims), *values]),
    )


def _listed(texts: list[str]) -> str:
    return f"[{', '.join(texts)}]"


def attention(causal: bool) -> tuple[str, str, str, str]:
    return (
        SDPA,
        f"[{QKV}, {QKV}, {QKV}, [], [], [], [], []]",
        f'[{BF16}, {BF16}, {BF16}, "", "Scalar", "Scalar", "Scalar", "Scalar"]',
        f'["", "", "", "", "True", "0.", "{causal}", "False"]',
    )


# The operator of each launch in the recording, by its index.
OPERATORS = {
    0: fill(BF16, "[4096, 4096]"),
    2: call("aten::mm", BF16, "[4096, 4096]", "[4096, 4096]"),
    4: call("aten::mm", FP32, "[2048, 2048]", "[2048, 2048]"),
    5: call("aten::mm", FP32, "[2048, 2048]", "[2048, 2048]"),
    6: fill(FP64, "[1024, 1024]"),
    7: call("aten::mm", FP64, "[1024, 1024]", "[1024, 1024]"),
    9: (
        "aten::copy_",
        "[[4096, 4096], [4096, 4096], []]",
        f'[{FP8}, {FP32}, "Scalar"]',
        '["", "", "False"]',
    ),
    12: (
        "aten::_scaled_mm",
        "[[4096, 4096], [4096, 4096], [], [], [], [], []]",
        f'[{FP8}, {FP8}, {FP32}, {FP32}, "", "", "Scalar"]',
        '["", "", "", "", "", "", "15"]',
    ),
    13: fill(BF16, "[8192, 8192]"),
    14: call("aten::_softmax", BF16, "[8192, 8192]", more="-1|False"),
    15: (
        "aten::native_layer_norm",
        "[[8192, 8192], [], [], [], []]",
        f'[{BF16}, "ScalarList", "", "", "Scalar"]',
        '["", "[8192]", "", "", "1e-05"]',
    ),
    16: call("aten::gelu", BF16, "[8192, 8192]", more="none"),
    17: fill(BF16, QKV),
    18: attention(causal=True),
    19: attention(causal=False),
    24: (
        "aten::cudnn_convolution",
        "[[32, 64, 56, 56], [128, 64, 3, 3], [], [], [], []]",
        f'[{FP16}, {FP16}, "ScalarList", "ScalarList", "ScalarList", "Scalar"]',
        '["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]',
    ),
    25: fill(FP32, "[67108864]"),
    27: call("aten::add", FP32, "[67108864]", "[67108864]", more="1"),
    29: call("aten::mm", BF16, "[1, 4096]", "[4096, 4096]"),
}


@cache
def report() -> Capture:
    return ncu.read(RAW)


def _one_row(table: str, **values: object) -> pl.DataFrame:
    return schema.conform(table, pl.DataFrame([{"rank": 0, **values}]))


@cache
def measure(launch: int) -> MeasuredKernel:
    """One launch of the recording, joined with a trace of it."""
    recorded = report()
    # ops.py allows TF32 for this one product.
    fingerprint = Fingerprint(devices=(H100,), allow_tf32_matmul=launch == 5)
    trace = Capture(
        Manifest(tool_version="0", source="test", title="t", created_ns=0),
        (ProcessInfo(fingerprint=fingerprint),),
        kernels=recorded.kernels[launch : launch + 1].with_columns(
            process=pl.lit(1, pl.Int64), correlation=pl.lit(1, pl.Int64)
        ),
        launches=_one_row("launches", process=1, thread=1, correlation=1, start_ns=1, end_ns=2),
        ops=_one_row(
            "ops",
            process=1,
            thread=1,
            op_id=0,
            start_ns=0,
            end_ns=3,
            **dict(zip(_COLUMNS, OPERATORS[launch], strict=True)),
        ),
    )
    key = launch_keys(recorded.kernels, recorded.launches).filter(pl.col("row") == launch)
    counters = recorded.counters.join(key, on=list(KEY), how="semi").with_columns(
        launch_index=pl.lit(0, pl.Int64)
    )
    alone = replace(recorded, kernels=recorded.kernels[launch : launch + 1], counters=counters)
    measured = analyze(join([trace, alone])).measured
    assert measured is not None
    (found,) = measured.kernels
    assert (found.calls, found.not_compared) == (1, "")
    return found


def products(launch: int) -> MeasuredFlops:
    """Counted and modelled operations of the launch's product."""
    (found,) = (part for part in measure(launch).flops if part.unit == "tensor")
    return found


def about(launch: int, what: str) -> str:
    """Why the launch differs in this; "" where it does not."""
    return " ".join(reason.text for reason in measure(launch).reasons if reason.about == what)


@pytest.mark.parametrize(
    ("launch", "precision"),
    [(2, "bf16"), (5, "tf32"), (7, "fp64"), (12, "fp8"), (19, "bf16"), (24, "fp16")],
)
def test_tensor_operations_are_the_models_to_the_last_digit(launch: int, precision: str) -> None:
    found = products(launch)
    assert found.precision == precision
    assert found.measured == found.modelled
    assert about(launch, "tensor FLOPs") == ""


def test_a_product_that_ran_on_the_vector_unit_is_compared_there() -> None:
    (found,) = measure(4).flops
    assert (found.unit, found.precision, found.modelled) == ("vector", "fp32", 2 * 2048**3)
    # One multiplication by alpha for each result besides.
    assert found.ratio == pytest.approx(1 + 1 / (2 * 2048), rel=1e-6)


def test_causal_attention_runs_whole_tiles_and_the_report_says_so() -> None:
    found = products(18)
    assert found.ratio is not None
    # The kernel skips tiles of 128 keys: a row of tiles reaches up to a tile past the diagonal.
    assert 1 < found.ratio <= 1 + 128 / 2048 + 0.001
    assert "tiles on the mask's edge run whole" in about(18, "tensor FLOPs")


def test_a_vector_times_a_matrix_fills_its_tile_and_the_report_says_so() -> None:
    assert products(29).ratio == 8
    assert "filled up to tiles of 64x8" in about(29, "tensor FLOPs")


@pytest.mark.parametrize("launch", [9, 14, 16, 24, 27, 29])
def test_streaming_kernels_read_their_operands_once(launch: int) -> None:
    assert measure(launch).bytes_read.ratio == pytest.approx(1, abs=0.03)
    assert about(launch, "bytes read") == ""


@pytest.mark.parametrize(
    ("launch", "ratio", "why"),
    [
        (2, 2.24, "some of it is read from DRAM again"),
        (12, 1.68, "some of it is read from DRAM again"),
        (15, 1.85, "each row is read for its mean and variance and again"),
        # ops.py multiplies a matrix by itself and takes one tensor for q, k and v.
        (4, 0.50, "2 arguments have the same shape and type"),
        (5, 0.50, "2 arguments have the same shape and type"),
        (7, 0.50, "2 arguments have the same shape and type"),
        (18, 0.33, "3 arguments have the same shape and type"),
        (19, 0.33, "3 arguments have the same shape and type"),
    ],
)
def test_other_reads_are_explained(launch: int, ratio: float, why: str) -> None:
    assert measure(launch).bytes_read.ratio == pytest.approx(ratio, abs=0.01)
    assert why in about(launch, "bytes read")


def test_a_launch_without_input_reads_its_code() -> None:
    assert measure(0).bytes_read.modelled == 0
    assert "a launch reads its code and arguments too" in about(0, "bytes read")


@pytest.mark.parametrize("launch", [0, 2, 4, 9, 13, 14, 15, 16, 18, 19])
def test_results_that_stay_in_l2_are_not_written_yet(launch: int) -> None:
    ratio = measure(launch).bytes_written.ratio
    assert ratio is not None
    assert ratio < 0.9
    assert "still in L2 (52.4 MB)" in about(launch, "bytes written")


def test_what_earlier_work_left_in_l2_is_written_back_by_a_later_launch() -> None:
    assert measure(29).bytes_written == Measured(1_467_136, 8192)
    assert "what earlier work left unwritten in L2" in about(29, "bytes written")


@pytest.mark.parametrize("launch", sorted(OPERATORS))
def test_every_difference_of_more_than_ten_percent_has_a_reason(launch: int) -> None:
    found = measure(launch)
    apart = {
        what: abs(figure.measured - figure.modelled) / max(figure.modelled, 1)
        for what, figure in (
            ("bytes read", found.bytes_read),
            ("bytes written", found.bytes_written),
        )
        if figure.measured is not None and figure.modelled is not None
    }
    explained = {
        reason.about for reason in found.reasons if reason.text != UNEXPLAINED and reason.source
    }
    explained -= {"tensor FLOPs"}
    assert {what for what, share in apart.items() if share > 0.1} <= explained
    assert explained <= {what for what, share in apart.items() if share > 0.05}
