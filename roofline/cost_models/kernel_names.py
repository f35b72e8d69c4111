"""What torch's kernels carry in their names: element types, and how a convolution is done.

Kineto records no dtype for the tensors of a TensorList, but the kernels that foreach, fused
optimizers and cat launch are templates over it:

    multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpScalarFunctor<float, 2, 1, 1>, ...>
    multi_tensor_apply_kernel<..., FusedAdamMathFunctor<c10::BFloat16, 4, ...>, ...>
    CatArrayBatchedCopy_vectorized<OpaqueType<2u>, unsigned int, 3, 128, 1, 16, 8>
"""

import re
from collections.abc import Iterable

from gpuprof.roofline import dtypes
from gpuprof.roofline.dtypes import DType

# cuDNN's and MIOpen's names; MIOpen's assembly kernels of Winograd's algorithm are called Sp3.
_ALGORITHMS = {
    "Winograd": re.compile("winograd|Sp3AsmConv", re.I),
    "Fourier": re.compile("fft", re.I),
}
_FUNCTOR = re.compile(r"(?:Functor|Copy)<((?:c10::)?\w+(?: \w+)*)[,>]")
_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")


def element_type(kernels: Iterable[str]) -> DType | None:
    """The element type that all kernels naming one agree on, or None."""
    found = {
        dtype
        for name in kernels
        for match in _FUNCTOR.finditer(name)
        if (dtype := dtypes.parse(match[1])) is not None
    }
    return found.pop() if len(found) == 1 else None


def element_size(kernels: Iterable[str]) -> int | None:
    """Bytes of the element that all kernels naming an opaque type agree on, or None."""
    found = {int(match[1]) for name in kernels for match in _OPAQUE.finditer(name)}
    return found.pop() if len(found) == 1 else None


def fast_algorithm(kernels: Iterable[str]) -> str | None:
    """The algorithm with fewer products than the direct one that a kernel's name tells, or None."""
    found = {
        algorithm
        for name in kernels
        for algorithm, pattern in _ALGORITHMS.items()
        if pattern.search(name)
    }
    return found.pop() if len(found) == 1 else None
