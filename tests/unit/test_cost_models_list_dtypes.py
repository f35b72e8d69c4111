"""Dtypes of lists of tensors from other tensors of the same shapes."""

from dataclasses import replace

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import OpCall, Scalar, Tensor, TensorList
from gpuprof.roofline.cost_models.list_dtypes import dtypes_by_shape, list_dtype
from gpuprof.roofline.dtypes import named


def tensor_list(*shapes: tuple[int, ...]) -> TensorList:
    return TensorList(tuple(Tensor(shape, None) for shape in shapes))


def test_a_shape_that_always_has_one_dtype_is_known() -> None:
    known = dtypes_by_shape(
        [
            ("[[4, 8], [8]]", '["c10::BFloat16", "float"]'),
            ("[[4, 8], []]", '["c10::BFloat16", "Scalar"]'),
            ("[[2], [2]]", '["float", "c10::Half"]'),
            ("[[3]]", '["c10::FutureType_x"]'),
            ("[[4, 8], [8]", '["float", "float"]'),
            (None, None),
        ]
    )
    assert known == {(4, 8): named("bfloat16"), (8,): named("float32")}


def test_a_list_has_the_dtype_that_its_known_shapes_agree_on() -> None:
    known = {(4,): named("float32"), (5,): named("float32"), (6,): named("bfloat16")}

    def of(*shapes: tuple[int, ...]) -> object:
        return list_dtype(OpCall("aten::cat", (tensor_list(*shapes), Scalar("0"))), known)

    assert of((4,), (5,)) == named("float32")
    assert of((4,), ()) == named("float32")
    assert of((4,), (6,)) is None
    assert of((4,), (7,)) == named("float32")
    assert of((7,)) is None
    assert of(()) is None


def test_lists_with_a_dtype_have_bytes_and_say_where_it_is_from() -> None:
    cat = OpCall("aten::cat", (tensor_list((10,), (20,)), Scalar("0")))
    foreach = OpCall("aten::_foreach_add_", (tensor_list((10,)), tensor_list((10,)), Scalar("1")))
    for call, moved in ((cat, 2 * 30 * 2), (foreach, 3 * 10 * 2)):
        unknown, told = cost_of(call), cost_of(replace(call, list_dtype=named("bfloat16")))
        assert unknown is not None
        assert told is not None
        assert unknown.bytes_moved() is None
        assert told.bytes_moved() == moved
        assert any("these shapes" in text for text in told.assumptions)
