"""Operator calls: the four JSON texts of a trace become typed arguments."""

import pytest

from gpuprof.roofline.cost_models.call import MathMode, Scalar, Tensor, TensorList, parse_call
from gpuprof.roofline.dtypes import named


def test_tensors_scalars_and_absent_arguments_are_told_apart() -> None:
    call = parse_call(
        "aten::add",
        "[[4, 8], [8], [], []]",
        '["float", "c10::BFloat16", "Scalar", ""]',
        "[[8, 1], [1], [], []]",
        '["", "", "2", ""]',
    )
    assert call is not None
    assert call.arguments == (
        Tensor((4, 8), named("float32"), (8, 1)),
        Tensor((8,), named("bfloat16"), (1,)),
        Scalar("2"),
        None,
    )


def test_a_zero_dimensional_tensor_is_a_tensor_of_one_element() -> None:
    call = parse_call("aten::mul", "[[]]", '["double"]', "[[]]", '[""]')
    assert call is not None
    tensor = call.tensor(0)
    assert tensor is not None
    assert (tensor.elements, tensor.bytes) == (1, 8)


def test_a_list_of_tensors_has_shapes_but_no_dtype() -> None:
    call = parse_call("aten::cat", "[[[2, 8], [3, 8]], []]", '["TensorList", "Scalar"]', None, None)
    assert call is not None
    assert call.arguments[0] == TensorList((Tensor((2, 8), None), Tensor((3, 8), None)))
    assert call.tensors(0) == (Tensor((2, 8), None), Tensor((3, 8), None))


def test_an_unknown_type_leaves_shape_and_an_unknown_dtype() -> None:
    call = parse_call("x::y", "[[2, 2]]", '["c10::FutureType_x"]', None, None)
    assert call is not None
    tensor = call.tensor(0)
    assert tensor == Tensor((2, 2), None)
    assert tensor.bytes is None


@pytest.mark.parametrize(
    ("dims", "types"),
    [
        (None, None),
        ("[[2, 2]]", None),
        (None, '["float"]'),
        ("[[2, 2]", '["float"]'),
        ("[[2, 2], [2", '["float", "float"]'),
        ("[[2, 2]]", '["float", "float"]'),
        ("{}", "{}"),
        ("[5]", '["float"]'),
        ('[["a"]]', '["float"]'),
        ("[[-1, 2]]", '["float"]'),
        ("[[true]]", '["float"]'),
        ("[[2]]", "[3]"),
        ("", ""),
    ],
)
def test_missing_or_malformed_shapes_give_no_call(dims: str | None, types: str | None) -> None:
    assert parse_call("aten::mm", dims, types, None, None) is None


@pytest.mark.parametrize("strides", [None, "", "[[", "[[1, 2, 3]]", '[["a", 1]]', "5"])
def test_unusable_strides_count_as_contiguous(strides: str | None) -> None:
    call = parse_call("aten::t", "[[4, 8]]", '["float"]', strides, None)
    assert call is not None
    tensor = call.tensor(0)
    assert tensor is not None
    assert (tensor.strides, tensor.distinct_elements) == (None, 32)


def test_an_expanded_axis_and_overlapping_windows_count_once() -> None:
    assert Tensor((4, 64, 32), None, (0, 32, 1)).distinct_elements == 64 * 32
    # unfold: 8 windows of 4 with step 1 lie in 11 elements.
    assert Tensor((8, 4), None, (1, 1)).distinct_elements == 11
    assert Tensor((0, 4), None, (0, 1)).distinct_elements == 0


def test_values_of_scalars_are_read_by_type() -> None:
    call = parse_call(
        "x::y",
        "[[], [], [], [], [], [], []]",
        '["Scalar", "Scalar", "ScalarList", "ScalarList", "Scalar", "", "Scalar"]',
        None,
        '["2.5", "True", "[1, 2]", "[True, False]", "7", "", ""]',
    )
    assert call is not None
    assert call.number(0) == 2.5
    assert call.integer(0) is None
    assert call.flag(1) is True
    assert call.integers(2) == (1, 2)
    assert call.flags(3) == (True, False)
    assert call.integers(4) == (7,)
    assert not call.has(5)
    assert call.number(6) is call.flag(6) is call.integers(6) is None
    assert call.number(99) is None


@pytest.mark.parametrize("levels", [101, 5000, 200_000])
def test_lists_without_end_are_unknown_however_large_the_stack(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    assert parse_call("x::y", deep, '["float"]', None, None) is None
    call = parse_call("x::y", "[[4, 8], []]", '["float", "ScalarList"]', deep, f'["", "{deep}"]')
    assert call is not None
    tensor = call.tensor(0)
    assert tensor is not None
    assert tensor.strides is None
    assert call.integers(1) is None


def test_a_long_list_of_tensors_is_not_deep() -> None:
    call = parse_call("x::y", f"[[{', '.join(['[2, 3]'] * 500)}]]", '["TensorList"]', None, None)
    assert call is not None
    assert len(call.tensors(0) or ()) == 500


def test_values_beyond_the_last_shape_are_kept() -> None:
    call = parse_call("x::y", "[[2]]", '["float"]', None, '["", "", "True"]')
    assert call is not None
    assert len(call.arguments) == 3
    assert not call.has(1)
    assert call.flag(2) is True


def test_settings_and_kernels_travel_with_the_call() -> None:
    mode = MathMode(tf32_matmul=True)
    call = parse_call("x::y", "[]", "[]", None, None, mode, ["gemm"])
    assert call is not None
    assert (call.math_mode, call.kernels) == (mode, ("gemm",))
