"""Why attention, a convolution or a product did not take another implementation."""

import json
from typing import Any

import pytest

from gpuprof.roofline.cost_models.call import OpCall, parse_call
from gpuprof.roofline.explain import attention
from gpuprof.roofline.explain.attention import OPERATOR, attention_dispatch
from gpuprof.roofline.explain.convolution import CHANGE_OF_LAYOUT, convolution_dispatch
from gpuprof.roofline.explain.product import product_dispatch
from gpuprof.roofline.explanation_figures import Backend
from gpuprof.roofline.kernel_names.decode import decode

FLASH, EFFICIENT, CUDNN, MATH = (
    f"aten::_scaled_dot_product_{name}"
    for name in (
        "flash_attention", "efficient_attention", "cudnn_attention", "attention_math",
    )
)  # fmt: skip


def sdpa(**changed: Any) -> OpCall:
    """bf16 queries, keys and values (2, 16, 1024, 64) without mask and dropout, not causal."""
    given: dict[str, Any] = {
        "query": [2, 16, 1024, 64], "key": [2, 16, 1024, 64], "value": [2, 16, 1024, 64],
        "mask": [], "types": ["c10::BFloat16"] * 3, "dropout": "0.", "causal": "False",
        "gqa": "False", "strides": None,
    } | changed  # fmt: skip
    tensors = [given["query"], given["key"], given["value"]]
    strides = given["strides"] or [contiguous(shape) for shape in tensors]
    mask_type = "bool" if given["mask"] else ""
    call = parse_call(
        OPERATOR,
        json.dumps([*tensors, given["mask"], [], [], [], []]),
        json.dumps([*given["types"], mask_type, "Scalar", "Scalar", "", "Scalar"]),
        json.dumps([*strides, contiguous(given["mask"]), [], [], [], []]),
        json.dumps(["", "", "", "", given["dropout"], given["causal"], "", given["gqa"]]),
    )
    assert call is not None
    return call


def contiguous(shape: list[int]) -> list[int]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


def others(call: OpCall | None, capability: str | None = "9.0") -> dict[str, Backend]:
    found = attention_dispatch(call, [OPERATOR, MATH, "aten::bmm"], capability)
    assert found is not None
    assert found.ran.startswith("math")
    return {backend.name: backend for backend in found.others}


def test_nothing_is_violated_by_a_plain_call() -> None:
    for backend in others(sdpa()).values():
        assert backend.violated == ()
        assert backend.unknown == ()


@pytest.mark.parametrize(
    ("changed", "violated_by"),
    [
        ({"mask": [1024, 1024]}, {"flash": "attn_mask"}),
        ({"mask": [16, 1024, 1024]}, {"flash": "attn_mask", "cuDNN": "two or four axes"}),
        ({"types": ["float"] * 3}, {"flash": "float16", "cuDNN": "float16"}),
        (
            {"types": ["double"] * 3},
            {"flash": "float16", "cuDNN": "float16", "memory-efficient": "float32"},
        ),
        ({"causal": "True", "query": [2, 16, 1, 64]}, {"flash": "as many queries as keys"}),
        (
            {"query": [2, 16, 8, 60], "key": [2, 16, 8, 60], "value": [2, 16, 8, 60]},
            {"memory-efficient": "multiples of 8", "cuDNN": "multiples of 8"},
        ),
        (
            {"query": [2, 16, 8, 320], "key": [2, 16, 8, 320], "value": [2, 16, 8, 320]},
            {"flash": "at most 256", "cuDNN": "at most 128"},
        ),
        ({"value": [2, 16, 1024, 32]}, {"flash": "one head size"}),
        (
            {"key": [2, 4, 1024, 64], "value": [2, 4, 1024, 64]},
            {"flash": "heads", "memory-efficient": "heads", "cuDNN": "heads"},
        ),
        (
            {"key": [2, 4, 1024, 64], "value": [2, 4, 1024, 64], "gqa": "True"},
            {"memory-efficient": "no grouped queries"},
        ),
        (
            {"query": [16, 1024, 64], "key": [16, 1024, 64], "value": [16, 1024, 64]},
            {"flash": "four axes", "memory-efficient": "four axes", "cuDNN": "four axes"},
        ),
        ({"dropout": "0.1"}, {"cuDNN": "1/16"}),
        ({"dropout": "0.125"}, {}),
        ({"key": [2, 16, 1, 64], "value": [2, 16, 1, 64]}, {"cuDNN": "more than one key"}),
        (
            {"strides": [[1048576, 65536, 1, 1024]] * 3},
            {"flash": "contiguous", "memory-efficient": "contiguous", "cuDNN": "contiguous"},
        ),
    ],
)
def test_what_the_arguments_violate(changed: dict[str, Any], violated_by: dict[str, str]) -> None:
    for name, backend in others(sdpa(**changed)).items():
        texts = [condition.text for condition in backend.violated]
        if name in violated_by:
            assert any(violated_by[name] in text for text in texts), (name, texts)
        else:
            assert texts == [], name


def test_each_violation_has_what_was_recorded_and_its_source() -> None:
    (condition,) = others(sdpa(mask=[1024, 1024]))["flash"].violated
    assert condition.recorded == "a mask of 1024x1024"
    assert "is_causal=True" in condition.remedy
    assert "check_for_attn_mask" in condition.source


def test_an_older_device() -> None:
    turing = others(sdpa(types=["c10::Half"] * 3), "7.5")
    assert [each.recorded for each in turing["flash"].violated] == ["7.5"]
    assert turing["memory-efficient"].violated == ()
    bfloat16 = others(sdpa(), "7.5")
    assert len(bfloat16["memory-efficient"].violated) == 1


def test_what_was_not_recorded_is_unknown_and_not_violated() -> None:
    backends = others(None)
    assert all(backend.violated == () and backend.unknown for backend in backends.values())
    of_no_device = others(sdpa(), None)
    assert of_no_device["flash"].violated == ()
    assert any("compute capability" in text for text in of_no_device["flash"].unknown)
    unsaid = others(sdpa(dropout="", causal="", query=[2, 16, 1, 64]))
    assert any("queries as keys" in text for text in unsaid["flash"].unknown)
    assert any("1/16" in text for text in unsaid["cuDNN"].unknown)


@pytest.mark.parametrize(
    ("operator", "ran"),
    [(FLASH, "flash"), (EFFICIENT, "memory-efficient"), (CUDNN, "cuDNN")],
)
def test_which_one_ran(operator: str, ran: str) -> None:
    found = attention_dispatch(sdpa(), [OPERATOR, operator], "9.0")
    assert found is not None
    assert found.ran == ran
    assert ran not in {backend.name for backend in found.others}


def test_a_cpu_has_no_choice_among_those_of_a_gpu() -> None:
    names = [OPERATOR, "aten::_scaled_dot_product_flash_attention_for_cpu"]
    found = attention_dispatch(sdpa(), names, None)
    assert found is not None
    assert (found.ran, found.others) == ("flash on a CPU", ())
    assert attention_dispatch(sdpa(), [OPERATOR, "aten::thing"], None) is None


def test_every_condition_of_the_table_is_looked_at() -> None:
    table = attention._table()
    assert {row.check for row in table.condition} == set(attention._CHECKS)
    backends = {row.name for row in table.backend if row.fused_on_gpus}
    assert {name for row in table.condition for name in row.backends} == backends


def convolution(dtype: str, channels: int, stride: str = "[1, 1]") -> OpCall:
    sizes = [[8, channels, 32, 32], [channels, 1, 3, 3]]
    call = parse_call(
        "aten::convolution",
        json.dumps([*sizes, [], [], [], []]),
        json.dumps([dtype, dtype, "", "ScalarList", "ScalarList", "ScalarList"]),
        "[]",
        json.dumps(["", "", "", stride, "[1, 1]", "[1, 1]"]),
    )
    assert call is not None
    return call


@pytest.mark.parametrize(
    ("call", "violated"),
    [
        (convolution("c10::Half", 64), []),
        (convolution("float", 64), ["the operands are float16"]),
        (convolution("c10::Half", 16, "[1, 2]"), ["one stride along", "at least 32 channels"]),
    ],
)
def test_depthwise_convolutions(call: OpCall, violated: list[str]) -> None:
    found = convolution_dispatch(call, ["aten::convolution", "aten::_conv_depthwise2d"], [])
    assert found is not None
    assert found.ran == "torch's own depthwise kernel"
    (cudnn,) = found.others
    assert len(cudnn.violated) == len(violated)
    for condition, text in zip(cudnn.violated, violated, strict=True):
        assert condition.text.startswith(text)


def test_a_change_of_layout_beside_a_convolution_is_said() -> None:
    names = ["aten::convolution", "aten::cudnn_convolution"]
    found = convolution_dispatch(None, names, [CHANGE_OF_LAYOUT, ""])
    assert found is not None
    assert any("channels_last" in note for note in found.notes)
    plain = convolution_dispatch(None, names, [""])
    assert plain is not None
    assert plain.notes == ()


def matrices(dtype: str, columns: int) -> OpCall:
    call = parse_call(
        "aten::mm",
        json.dumps([[8192, columns], [columns, 4096]]),
        json.dumps([dtype, dtype]),
        json.dumps([[columns, 1], [4096, 1]]),
        "[]",
    )
    assert call is not None
    return call


@pytest.mark.parametrize(
    ("dtype", "columns", "kernel", "capability", "missed"),
    [
        ("c10::BFloat16", 2048, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_NNT", "9.0", []),
        (
            "c10::BFloat16", 2047, "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1",
            "9.0", ["kernels for aligned operands"],
        ),
        ("float", 2048, "ampere_sgemm_128x64_nn", "9.0", ["TF32 tensor cores"]),
        ("float", 2048, "ampere_sgemm_128x64_nn", "7.5", []),
        ("float", 2048, "ampere_sgemm_128x64_nn", None, []),
        ("float", 2048, "cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4", "8.0", []),
        ("float", 2048, "triton_poi_fused_add_0", "9.0", []),
    ],
)  # fmt: skip
def test_what_products_miss(
    dtype: str, columns: int, kernel: str, capability: str | None, missed: list[str]
) -> None:
    name = decode(kernel)
    assert name is not None
    found = product_dispatch("aten::mm", matrices(dtype, columns), [name], capability)
    assert [each.name for each in (found.others if found else ())] == missed
    assert product_dispatch("aten::mm", None, [name], capability) is None
    # What a convolution does in a product is the convolution's.
    operands = matrices(dtype, columns)
    assert product_dispatch("aten::convolution_backward", operands, [name], capability) is None
