"""One operator call as the profiler printed it, parsed into typed arguments."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from gpuprof.roofline import dtypes
from gpuprof.roofline.dtypes import DType
from gpuprof.roofline.kernel_names.product_arithmetic import ProductArithmetic
from gpuprof.roofline.nested_json import nests_too_deep

# In the names of operators on mkldnn's own layout: dense, but without strides.
MKLDNN = "mkldnn"
# The type of a tensor whose type the trace left out.
_UNRECORDED = "unrecorded"


@dataclass(frozen=True)
class Tensor:
    """A tensor argument. `dtype` is None where the trace's type string is not known."""

    shape: tuple[int, ...]
    dtype: DType | None
    # None where the trace did not record strides; the tensor then counts as contiguous.
    strides: tuple[int, ...] | None = None
    # False where it recorded that there are none: only strided tensors have them, not those with a
    # sparse layout, whose shape does not tell how many elements they hold, nor mkldnn's.
    strided: bool = True

    @property
    def elements(self) -> int:
        """Elements by shape."""
        return math.prod(self.shape)

    @property
    def distinct_elements(self) -> int:
        """Elements that lie at different addresses.

        An expanded (stride 0) axis counts once, and overlapping windows (as_strided, unfold) no
        more than the span they lie in.
        """
        if self.strides is None or len(self.strides) != len(self.shape) or not self.elements:
            return self.elements
        axes = list(zip(self.shape, self.strides, strict=True))
        span = 1 + sum((size - 1) * abs(stride) for size, stride in axes)
        return min(math.prod(size for size, stride in axes if stride != 0), span)

    @property
    def bytes(self) -> int | None:
        """Bytes of the distinct elements, or None where the dtype is unknown."""
        if self.dtype is None:
            return None
        return self.dtype.bytes_for(self.distinct_elements)


@dataclass(frozen=True)
class TensorList:
    """A TensorList argument, such as the inputs of cat or of a foreach op.

    Traces of other tools record no element type for them: `dtype` is None in each.
    """

    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class Scalar:
    """A number, boolean, list of numbers or string: its text as printed, "" where not recorded."""

    text: str


Argument: TypeAlias = Tensor | TensorList | Scalar | None


@dataclass(frozen=True)
class MathMode:
    """Settings of the program that decide which unit a float32 product runs on.

    None where they are not known: products count as fp32, unless their kernels tell otherwise.
    """

    tf32_matmul: bool | None = False
    tf32_convolution: bool | None = False
    # Without TF32 units nothing runs in it, whatever the program allows.
    tf32_units: bool = True


@dataclass(frozen=True)
class OpCall:
    """An operator and its arguments, in schema order. Absent arguments are None."""

    name: str
    arguments: tuple[Argument, ...]
    math_mode: MathMode = MathMode()
    # Names of the kernels that this call launched. Some carry an element type in their template
    # arguments that the operator's own record lacks (TensorList).
    kernels: tuple[str, ...] = ()
    # What the kernels' names tell of products of float32 operands, and of products of 16-bit
    # operands without tensor cores; None where they do not.
    arithmetic: ProductArithmetic | None = None
    # Elements of each list of parameters, where the trace left the lists empty for their length.
    list_elements: int | None = None
    # The dtype of the tensors in lists, where gpuprof.roofline.cost_models.list_dtypes found it.
    list_dtype: DType | None = None
    # The launch of the call's one kernel, for operators whose arguments do not tell their size.
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    # What a generated kernel calls its arguments; () where its source was not at hand.
    argument_names: tuple[str, ...] = ()
    # How many loads or stores of each of these stand in its source.
    argument_accesses: tuple[int, ...] = ()
    # What the kernel's record tells of a collective, in the words of torch and NCCL ("allreduce",
    # "BFloat16"); "" where it does not.
    collective: str = ""
    collective_dtype: str = ""
    # The operator that called it, for those whose own record leaves out what the caller's has.
    caller: "OpCall | None" = None
    # An operand is sparse: its shape does not tell what the call did.
    sparse: bool = False

    def _argument(self, position: int) -> Argument:
        return self.arguments[position] if 0 <= position < len(self.arguments) else None

    def has(self, position: int) -> bool:
        """Whether an argument other than None stands at `position`."""
        return self._argument(position) is not None

    def tensor(self, position: int) -> Tensor | None:
        """The tensor at `position`, or None where there is none."""
        argument = self._argument(position)
        return argument if isinstance(argument, Tensor) else None

    def tensors_after(self, position: int) -> tuple[Tensor, ...]:
        """All tensors that stand after `position`."""
        return tuple(a for a in self.arguments[position + 1 :] if isinstance(a, Tensor))

    def tensors(self, position: int) -> tuple[Tensor, ...] | None:
        """The tensors of the list at `position`, or None where there is no list."""
        argument = self._argument(position)
        return argument.tensors if isinstance(argument, TensorList) else None

    def text(self, position: int) -> str | None:
        """The scalar at `position` as printed; None where absent or not recorded."""
        argument = self._argument(position)
        return argument.text or None if isinstance(argument, Scalar) else None

    def number(self, position: int) -> float | None:
        """The finite number at `position`; None where it is absent, unrecorded or none."""
        text = self.text(position)
        try:
            number = math.nan if text is None else float(text)
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    def integer(self, position: int) -> int | None:
        """The integer at `position`; None where it is absent, unrecorded or no integer."""
        text = self.text(position)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def flag(self, position: int) -> bool | None:
        """The boolean at `position`; None where it is absent, unrecorded or no boolean."""
        return {"True": True, "False": False}.get(self.text(position) or "")

    def integers(self, position: int) -> tuple[int, ...] | None:
        """The list of integers at `position`, a single one as a list; None where unknown."""
        return _number_list(self.text(position), int)

    def flags(self, position: int) -> tuple[bool, ...] | None:
        """The list of booleans at `position`; None where unknown."""
        return _number_list((self.text(position) or "").lower() or None, bool)

    def dtype(self, position: int) -> DType | None:
        """The dtype argument at `position`; None where absent or unknown."""
        text = self.text(position)
        return None if text is None else dtypes.parse(text)


def _number_list(text: str | None, kind: type[Any]) -> tuple[Any, ...] | None:
    if text is None:
        return None
    values = _decode(text)
    if not isinstance(values, list):
        values = [values]
    return tuple(values) if all(type(value) is kind for value in values) else None


def _decode(text: str) -> Any:
    if nests_too_deep(text):
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def parse_call(
    name: str,
    input_dims: str | None,
    input_types: str | None,
    input_strides: str | None,
    concrete_inputs: str | None,
    math_mode: MathMode = MathMode(),
    kernels: Sequence[str] = (),
) -> OpCall | None:
    """The call that the JSON texts of an op's row describe.

    The texts are Kineto's "Input Dims", "Input type", "Input Strides" and "Concrete Inputs". None
    where shapes or types were not recorded, were cut short or do not fit each other; strides and
    concrete inputs that are missing or malformed, and an empty list of types, only leave their
    values unknown.
    """
    arguments = parse_arguments(input_dims, input_types, input_strides, concrete_inputs)
    if arguments is None:
        return None
    sparse = MKLDNN not in name and not all(map(_is_strided, arguments))
    return OpCall(name, arguments, math_mode, tuple(kernels), sparse=sparse)


def parse_arguments(
    input_dims: str | None,
    input_types: str | None,
    input_strides: str | None = None,
    concrete_inputs: str | None = None,
) -> tuple[Argument, ...] | None:
    """The arguments of the call that `parse_call` gives."""
    if input_dims is None or input_types is None:
        return None
    dims, types = _decode(input_dims), _decode(input_types)
    if not isinstance(dims, list) or not isinstance(types, list):
        return None
    if types and len(dims) != len(types):
        return None
    concrete = _list(concrete_inputs)
    if not types:
        # torch 1.8 leaves the types of all arguments out.
        types = [_UNRECORDED if sizes else "Scalar" for sizes in dims]
    # Some writers stop the shapes at the last tensor and go on with the scalars' values.
    more = concrete[len(dims) :]
    dims, types = dims + [[] for _ in more], types + ["Scalar" if text else "" for text in more]
    strides = _padded(_list(input_strides), len(dims))
    concrete = _padded(concrete, len(dims))
    try:
        return tuple(map(_parse_argument, dims, types, strides, concrete))
    except ValueError:
        return None


def _is_strided(argument: Argument) -> bool:
    if isinstance(argument, TensorList):
        return all(tensor.strided for tensor in argument.tensors)
    return not isinstance(argument, Tensor) or argument.strided


def _list(text: str | None) -> list[Any]:
    values = None if text is None else _decode(text)
    return values if isinstance(values, list) else []


def _padded(values: list[Any], length: int) -> list[Any]:
    return values[:length] + [None] * (length - len(values))


def _parse_argument(dims: Any, kind: Any, strides: Any, concrete: Any) -> Argument:
    if not isinstance(dims, list) or not isinstance(kind, str):
        raise ValueError(f"no argument: {dims!r}, {kind!r}")
    if dtypes.is_tensor_list(kind) or list in map(type, dims):
        recorded = isinstance(strides, list) and len(strides) == len(dims)
        each = strides if recorded else [None] * len(dims)
        types = dtypes.list_dtypes(kind, len(dims))
        return TensorList(tuple(map(_tensor, dims, types, each)))
    if kind in dtypes.NOT_A_TENSOR:
        if kind == "" and not dims and not concrete:
            return None
        return Scalar(concrete if isinstance(concrete, str) else "")
    return _tensor(dims, dtypes.parse(kind), strides)


def _tensor(shape: Any, dtype: DType | None, strides: Any) -> Tensor:
    if not isinstance(shape, list) or not _are_integers(shape) or min(shape, default=0) < 0:
        raise ValueError(f"no shape: {shape!r}")
    known = isinstance(strides, list) and len(strides) == len(shape)
    usable = known and _are_integers(strides)
    strided = not (shape and strides == [])
    return Tensor(tuple(shape), dtype, tuple(strides) if usable else None, strided)


def _are_integers(values: list[Any]) -> bool:
    """Whether they are, and no booleans."""
    return set(map(type, values)) <= {int}
