"""Type texts: what Kineto, NCCL and torch call each element type."""

import itertools

import pytest
import torch

from gpuprof.roofline.dtypes import named, parse, promote

# The case dtype-names: texts of "Input type" and bytes of one stored element.
KINETO_BYTES = {
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::Float8_e8m0fnu": 1,
    "c10::Float4_e2m1fn_x2": 1,
    "int": 4,
    "long int": 8,
    "long": 8,
    "short int": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
NOT_TENSORS = ("Scalar", "ScalarList", "TensorList", "GenericList", "Device", "")
NCCL_BYTES = {
    "Float": 4,
    "Double": 8,
    "Half": 2,
    "BFloat16": 2,
    "Int": 4,
    "Long": 8,
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
}


@pytest.mark.parametrize(("text", "size"), (KINETO_BYTES | NCCL_BYTES).items())
def test_each_known_text_gives_the_bytes_of_an_element(text: str, size: int) -> None:
    dtype = parse(text)
    assert dtype is not None
    assert dtype.bytes_for(1) == size
    assert dtype.bytes_for(1000) == 1000 * size


@pytest.mark.parametrize("text", NOT_TENSORS)
def test_texts_that_stand_for_no_tensor_have_no_dtype(text: str) -> None:
    assert parse(text) is None


def test_a_type_of_the_future_is_unknown_not_four_bytes() -> None:
    assert parse("c10::FutureType_x") is None


def test_a_packed_float4_element_is_one_byte_and_two_values() -> None:
    packed = parse("c10::Float4_e2m1fn_x2")
    assert packed is not None
    assert (packed.bytes_for(7), packed.values_per_element, packed.precision) == (7, 2, "fp4")


def test_kinds_of_arithmetic_keep_8_bit_floats_apart_from_8_bit_integers() -> None:
    precisions = {text: dtype.precision for text in KINETO_BYTES if (dtype := parse(text))}
    assert precisions["c10::Float8_e5m2"] == "fp8"
    assert precisions["signed char"] == "int8"
    assert precisions["c10::Half"] == "fp16"
    assert precisions["c10::BFloat16"] == "bf16"
    assert precisions["long int"] == "integer"


def torch_dtypes() -> dict[str, torch.dtype]:
    found = (value for value in vars(torch).values() if isinstance(value, torch.dtype))
    return {str(dtype).removeprefix("torch."): dtype for dtype in found}


def test_sizes_are_those_of_torch() -> None:
    known = {name: dtype for name, dtype in torch_dtypes().items() if parse(name) is not None}
    assert len(known) >= 20
    assert {name: named(name).bits for name in known} == {
        name: 8 * dtype.itemsize for name, dtype in known.items()
    }


def test_numbers_of_dtype_arguments_are_those_a_trace_prints() -> None:
    # aten::empty's "Concrete Inputs" of the recordings: 5 for float16, 6 for float32, 15 bfloat16.
    for name, number in (("float16", "5"), ("float32", "6"), ("bfloat16", "15"), ("int64", "4")):
        assert parse(number) == named(name)


def test_promotion_is_torchs_wherever_torch_promotes() -> None:
    names = [
        *("float64", "float32", "float16", "bfloat16", "complex128", "complex64", "complex32"),
        *("int64", "int32", "int16", "int8", "uint8", "bool"),
    ]
    for left, right in itertools.product(names, names):
        expected = torch.promote_types(getattr(torch, left), getattr(torch, right))
        promoted = promote(named(left), named(right))
        assert promoted is not None
        assert f"torch.{promoted.name}" == str(expected), (left, right)


def test_float8_promotes_with_nothing_but_itself() -> None:
    float8 = named("float8_e4m3fn")
    assert promote(float8, float8) == float8
    assert promote(float8, named("float32")) is None
