"""One operator call as the profiler printed it, parsed into typed arguments."""

import math
from dataclasses import dataclass
from typing import TypeAlias

from gpuprof.roofline.dtypes import DType


@dataclass(frozen=True)
class Tensor:
    """A tensor argument. `dtype` is None where the trace's type string is not known."""

    shape: tuple[int, ...]
    dtype: DType | None
    # None where the trace did not record strides; the tensor then counts as contiguous.
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        """Elements by shape."""
        return math.prod(self.shape)

    @property
    def distinct_elements(self) -> int:
        """Elements that lie at different addresses: an expanded (stride 0) axis counts once."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.elements
        return math.prod(
            size for size, stride in zip(self.shape, self.strides, strict=True) if stride != 0
        )

    @property
    def bytes(self) -> int | None:
        """Bytes of the distinct elements, or None where the dtype is unknown."""
        if self.dtype is None:
            return None
        return self.dtype.bytes_for(self.distinct_elements)


@dataclass(frozen=True)
class TensorList:
    """A TensorList argument, such as the inputs of cat or of a foreach op."""

    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class Scalar:
    """A number, boolean, list of numbers or string: its text as printed, "" where not recorded."""

    text: str


Argument: TypeAlias = Tensor | TensorList | Scalar | None


@dataclass(frozen=True)
class MathMode:
    """Settings of the program that decide which unit a float32 product runs on."""

    tf32_matmul: bool = False
    tf32_convolution: bool = False


@dataclass(frozen=True)
class OpCall:
    """An operator and its arguments, in schema order. Absent arguments are None."""

    name: str
    arguments: tuple[Argument, ...]
    math_mode: MathMode = MathMode()
