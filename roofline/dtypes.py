"""Element types: what a profiler's type text means in bits, arithmetic and promotion."""

from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

# From the lowest to the highest in torch's type promotion.
Kind = Literal["bool", "integer", "float", "complex"]

_TENSOR_LIST: Final = "TensorList"
# Texts of "Input type" that stand for something else than a tensor.
NOT_A_TENSOR: Final = frozenset(
    {"", "Scalar", "ScalarList", "TensorList", "GenericList", "Device", "Generator", "None"}
)


class DType(msgspec.Struct, frozen=True):
    """An element type. `bits` are those of one stored element, which may pack several values."""

    name: str
    bits: int
    # fp64, fp32, fp16, bf16, fp8, fp4, int8 or integer: the arithmetic of a matrix product.
    precision: str
    kind: Kind
    # 2 for float4_e2m1fn_x2, whose recorded shapes count bytes.
    values_per_element: int = 1

    def bytes_for(self, elements: int) -> int:
        """Bytes of `elements` stored elements, that is of a shape's product as it was recorded."""
        return -(-elements * self.bits // 8)


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    bits: int
    precision: str
    kind: Kind
    kineto: tuple[str, ...]
    nccl: tuple[str, ...]
    number: int
    values_per_element: int = 1


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: tuple[_Row, ...]


@cache
def _by_text() -> dict[str, DType]:
    text = files("gpuprof.roofline").joinpath("dtypes.toml").read_bytes()
    table: dict[str, DType] = {}
    for row in msgspec.toml.decode(text, type=_Table).dtype:
        dtype = DType(row.name, row.bits, row.precision, row.kind, row.values_per_element)
        keys = (row.name, *row.kineto, *row.nccl, str(row.number))
        table.update(dict.fromkeys(keys, dtype))
    return table


def parse(text: str) -> DType | None:
    """The dtype that `text` names, or None.

    Understands Kineto's "Input type" ("c10::BFloat16", "long int"), NCCL's "dtype" ("BFloat16",
    "Long"), torch's names ("bfloat16") and the number of a dtype argument in "Concrete Inputs"
    ("15").
    """
    return _by_text().get(text)


def is_tensor_list(text: str) -> bool:
    """Whether a type text is that of a list of tensors, "TensorList" or "TensorList[float32]"."""
    return text.partition("[")[0] == _TENSOR_LIST


def list_dtypes(text: str, count: int) -> tuple[DType | None, ...]:
    """The dtypes of the `count` tensors of a list; None each where `text` does not tell them."""
    kind, _, names = text.partition("[")
    found = tuple(map(parse, names.removesuffix("]").split(",")))
    if kind != _TENSOR_LIST:
        return (None,) * count
    if len(found) == 1:
        return found * count
    return found if len(found) == count else (None,) * count


def named(name: str) -> DType:
    """The dtype called `name` in torch, without "torch."."""
    return _by_text()[name]


def promote(left: DType, right: DType) -> DType | None:
    """The dtype of an operation between two tensors of these dtypes, by torch's rules.

    The higher kind wins; of two floats the wider one, and float32 for float16 with bfloat16.
    None for pairs that torch refuses (float8, unsigned beyond 8 bits).
    """
    if left == right:
        return left
    ranks = ("bool", "integer", "float", "complex")
    low, high = sorted((left, right), key=lambda d: (ranks.index(d.kind), d.bits))
    if any(d.bits == 8 and d.kind == "float" for d in (low, high)):
        return None
    if low.kind != high.kind:
        # A complex number becomes at least as precise and as wide in range as the float it meets.
        if high.kind == "complex" and low.kind == "float":
            narrow = low.bits * 2 > high.bits or (low.name, high.name) == ("bfloat16", "complex32")
            if narrow:
                return named("complex128" if low.bits == 64 else "complex64")
        return high
    if low.bits == high.bits:
        mixed = {low.name, high.name}
        if mixed == {"float16", "bfloat16"}:
            return named("float32")
        return named("int16") if mixed == {"int8", "uint8"} else None
    if high.name.startswith("uint"):
        return None
    return high
