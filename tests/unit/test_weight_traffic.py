"""Which bytes of a step are weights, and which keys and values: the cost of each call says it."""

import json
from collections.abc import Iterator

import pytest
from capture_builder import CaptureBuilder

from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models import cost_model, cost_of, registry
from gpuprof.roofline.cost_models.call import Argument, OpCall, Scalar, Tensor
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import named

ATTENTION = "aten::_scaled_dot_product_flash_attention"


def bf16(*shape: int, strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, named("bfloat16"), strides)


def read(name: str, *arguments: Argument) -> tuple[int | None, int | None]:
    """Weight bytes, and key and value bytes, of a call."""
    cost = cost_of(OpCall(name, arguments))
    assert cost is not None
    return cost.weight_bytes, cost.key_value_bytes


FP8 = named("float8_e4m3fn")
SCALES = Tensor((8, 1), named("float32")), Tensor((1, 16), named("float32"))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::mm", (bf16(8, 32), bf16(32, 16))),
        ("aten::addmm", (bf16(16), bf16(8, 32), bf16(32, 16))),
        ("aten::linear", (bf16(8, 32), bf16(16, 32), bf16(16))),
        ("vllm::rocm_unquantized_gemm", (bf16(8, 32), bf16(16, 32), bf16(16))),
        ("aiter::gemm_a16w16", (bf16(8, 32), bf16(16, 32), None, Scalar("15"))),
        ("triton_tem_fused_mm_3", (bf16(8, 32), bf16(32, 16), bf16(8, 16))),
        # A vector is multiplied from the right: the matrix stands first.
        ("aten::addmv", (bf16(16), bf16(16, 32), bf16(32))),
        ("aten::mv", (bf16(16, 32), bf16(32))),
        ("aten::matmul", (bf16(16, 32), bf16(32))),
        ("aten::matmul", (bf16(2, 4, 32), bf16(32, 16))),
    ],
)
def test_the_weight_of_a_product_is_its_matrix_beside_the_activations(
    name: str, arguments: tuple[Argument, ...]
) -> None:
    assert read(name, *arguments) == (2 * 32 * 16, 0)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::_scaled_mm", (Tensor((8, 32), FP8), Tensor((32, 16), FP8), *SCALES)),
        (
            "_C::cutlass_scaled_mm",
            (bf16(8, 16), Tensor((8, 32), FP8), Tensor((32, 16), FP8), *SCALES),
        ),
        ("sgl_kernel::fp8_scaled_mm", (Tensor((8, 32), FP8), Tensor((32, 16), FP8), *SCALES)),
        (
            "triton_tem_fused__scaled_mm_0",
            (Tensor((8, 32), FP8), Tensor((32, 16), FP8), *SCALES, bf16(8, 16)),
        ),
    ],
)
def test_scales_of_narrow_weights_are_read_too(name: str, arguments: tuple[Argument, ...]) -> None:
    assert read(name, *arguments) == (32 * 16 + 4 * 16, 0)


def test_a_step_reads_no_more_experts_than_it_has_rows() -> None:
    experts = bf16(8, 32, 16)
    assert read("aten::_grouped_mm", bf16(3, 32), experts) == (3 * 2 * 32 * 16, 0)
    assert read("aten::_grouped_mm", bf16(300, 32), experts) == (8 * 2 * 32 * 16, 0)


def test_a_weight_of_an_unknown_type_leaves_the_bytes_unknown() -> None:
    assert read("aten::mm", bf16(8, 32), Tensor((32, 16), None)) == (None, 0)


def test_the_filter_of_a_convolution_is_its_weight() -> None:
    lists = map(Scalar, ("[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"))
    arguments = bf16(1, 4, 9, 9), bf16(8, 4, 3, 3), bf16(8), *lists
    assert read("aten::convolution", *arguments) == (2 * 8 * 4 * 3 * 3, 0)


def test_the_weights_of_a_recurrent_layer_are_its_matrices_without_biases() -> None:
    inputs, state = bf16(5, 1, 32), bf16(1, 1, 16)
    of_input, of_state, bias = bf16(64, 32), bf16(64, 16), bf16(64)
    tail = map(Scalar, ("False", "[]", "2", "16", "1", "True", "False", "False", "False"))
    arguments = inputs, of_input, of_state, bias, bias, state, state, *tail
    assert read("aten::mkldnn_rnn_layer", *arguments) == (2 * 64 * (32 + 16), 0)


def test_keys_and_values_of_grouped_queries_are_read_once() -> None:
    query, cache = bf16(1, 32, 1, 128), bf16(1, 8, 2048, 128)
    arguments = query, cache, cache, Scalar("0."), Scalar("False")
    assert read(ATTENTION, *arguments) == (0, 2 * 2 * 8 * 2048 * 128)


def test_written_out_attention_reads_them_as_the_second_operand() -> None:
    assert read("aten::bmm", bf16(32, 1, 128), bf16(32, 128, 64)) == (0, 2 * 32 * 128 * 64)
    # Keys that an expanded axis shares between heads count once.
    shared = bf16(32, 128, 64, strides=(0, 64, 1))
    assert read("aten::bmm", bf16(32, 1, 128), shared) == (0, 2 * 128 * 64)


def test_of_a_partly_filled_cache_the_part_that_is_read_is_not_known() -> None:
    cache = bf16(1, 4096, 8, 128)
    arguments = [bf16(1, 1, 32, 128), cache, cache, *[None] * 10, Tensor((1,), named("int32"))]
    assert read("aten::_flash_attention_forward", *arguments) == (0, None)


def test_of_a_cache_of_pages_the_part_that_is_read_is_not_known() -> None:
    """A decode of vLLM: the operator is given all pages there are."""
    pages, table = bf16(4096, 16, 8, 128), Tensor((2, 64), named("int32"))
    arguments = [bf16(2, 32, 128), pages, pages, *[None] * 5, table, *[None] * 6, Scalar("True")]
    assert read("_vllm_fa2_C::varlen_fwd", *arguments) == (0, None)


def analysis_of(
    build: CaptureBuilder, *products: tuple[str, list[list[int]]], kernel: str = "k"
) -> Analysis:
    """An inference step that calls these operators of bf16 tensors in turn."""
    build.step("timed", -5010, -10, device_ns=5000)
    build.step("profiled", 0, 1000)
    for index, (name, shapes) in enumerate(products):
        start = 100 * index
        types = json.dumps(["c10::BFloat16"] * len(shapes))
        build.op(name, start, start + 50, dims=str(shapes), types=types)
        build.kernel(start + 10, 1000 + start, 1040 + start, kernel)
    return analyze(build.build())


MM = ("aten::mm", [[64, 32], [32, 16]])
WEIGHT = 2 * 32 * 16


@pytest.fixture
def mylib() -> Iterator[str]:
    """The name of an operator that is forgotten after the test."""
    name = "mylib::fused_mlp"
    yield name
    registry._models.pop(name, None)


def model_of_user(name: str, **said: int) -> None:
    """Register a product that says of its operands what `said` holds."""

    @cost_model(name)
    def model(call: OpCall) -> Cost:
        flops = (Flops("matmul", "bf16", 2 * 64 * 32 * 16),)
        return Cost(flops=flops, bytes_read=None, bytes_written=None, **said)


@pytest.mark.parametrize(
    "product",
    [
        MM,
        ("vllm::rocm_unquantized_gemm", [[64, 32], [16, 32]]),
        ("aiter::gemm_a16w16", [[64, 32], [16, 32]]),
        ("triton_tem_fused_mm_3", [[64, 32], [32, 16], [64, 16]]),
        ("mylib::fused_mlp", [[64, 32], [32, 16]]),
    ],
)
def test_mbu_of_two_equal_products_does_not_depend_on_their_names(
    build: CaptureBuilder, product: tuple[str, list[list[int]]], mylib: str
) -> None:
    model_of_user(mylib, weight_bytes=WEIGHT, key_value_bytes=0)
    found = analysis_of(build, MM, product)
    assert found.utilization is not None
    assert found.utilization.memory_peak is not None
    assert (found.utilization.weight_bytes, found.utilization.key_value_bytes) == (2 * WEIGHT, 0)
    assert found.utilization.mbu == 2 * WEIGHT / 5000e-9 / found.utilization.memory_peak.rate
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ({}, "no weight_bytes and no key_value_bytes"),
        ({"weight_bytes": WEIGHT}, "no key_value_bytes"),
        ({"key_value_bytes": 0}, "no weight_bytes"),
    ],
)
def test_a_product_whose_model_does_not_say_what_is_a_weight_leaves_mbu_unknown(
    build: CaptureBuilder, mylib: str, said: dict[str, int], missing: str
) -> None:
    model_of_user(mylib, **said)
    found = analysis_of(build, MM, (mylib, []))
    assert found.utilization is not None
    assert found.utilization.mbu is None
    assert [w for w in found.warnings if f"{mylib} (its cost has {missing})" in w]


def test_other_work_need_not_say_it(build: CaptureBuilder, mylib: str) -> None:
    @cost_model(mylib)
    def model(call: OpCall) -> Cost:
        return Cost(flops=(Flops("vector", "fp32", 9),), bytes_read=None, bytes_written=None)

    views = [[32000, 32], [64]]
    found = analysis_of(
        build, MM, (mylib, []), ("aten::relu", [[64, 32]]), ("aten::embedding", views)
    )
    assert found.utilization is not None
    assert found.utilization.weight_bytes == WEIGHT
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("name", "kernel", "reason"),
    [
        ("mylib::unheard_of", "nvjet_sm90_tst_128x64", "no cost model for mylib::unheard_of"),
        ("mylib::paged_attention", "k", "no cost model for mylib::paged_attention"),
        ("triton_tem_fused_flex_attention_7", "k", "does not cover this call"),
    ],
)
def test_a_product_without_a_cost_leaves_mbu_unknown(
    build: CaptureBuilder, name: str, kernel: str, reason: str
) -> None:
    found = analysis_of(build, MM, (name, [[64, 32]]), kernel=kernel)
    assert found.utilization is not None
    assert found.utilization.mbu is None
    assert [w for w in found.warnings if name in w and reason in w]


def test_other_work_without_a_cost_leaves_mbu_as_it_is(build: CaptureBuilder) -> None:
    found = analysis_of(build, MM, ("mylib::unheard_of", [[64, 32]]))
    assert found.utilization is not None
    assert found.utilization.weight_bytes == WEIGHT


def test_a_product_that_no_operator_launched_leaves_mbu_unknown(build: CaptureBuilder) -> None:
    build.kernel(900, 1900, 1940, "sm90_xmma_gemm_bf16bf16")
    found = analysis_of(build, MM)
    assert found.utilization is not None
    assert found.utilization.mbu is None
    assert [w for w in found.warnings if "sm90_xmma_gemm_bf16bf16 (no operator launched it)" in w]


def test_many_reasons_are_named_in_part(build: CaptureBuilder) -> None:
    calls = [(f"mylib::attention_{index}", [[64, 32]]) for index in range(5)]
    found = analysis_of(build, MM, *calls)
    (sentence,) = (w for w in found.warnings if w.startswith("MBU is unknown"))
    assert sentence.endswith(", 2 more")
