"""What torch's kernels carry in their names: element types, and how a convolution is done.

Kineto records no dtype for the tensors of a TensorList, but the kernels that foreach, fused
optimizers and cat launch are templates over it:

    multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpScalarFunctor<float, 2, 1, 1>, ...>
    multi_tensor_apply_kernel<..., FusedAdamMathFunctor<c10::BFloat16, 4, ...>, ...>
    CatArrayBatchedCopy_vectorized<OpaqueType<2u>, unsigned int, 3, 128, 1, 16, 8>
"""

import re
from collections.abc import Iterable
from typing import Final

from gpuprof.roofline import dtypes
from gpuprof.roofline.dtypes import DType
from gpuprof.roofline.kernel_names.decode import decode

# Algorithms of kernel_names.toml, as they are called in reports.
_FAST_ALGORITHMS: Final = {"Winograd": "Winograd", "FFT": "Fourier"}
_FUNCTOR = re.compile(r"(?:Functor|Copy)<((?:c10::)?\w+(?: \w+)*)[,>]")
_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")

# volta_scudnn_128x64_relu_interior_nn_v1, volta_hgemm_128x64_nn; volta_fp16_sgemm_... is neither.
_BLAS_LETTER = re.compile(r"\b(?:maxwell|volta|turing|ampere)_([sh])(?:gemm|cudnn)_")
_LETTERS = {"s": "float32", "h": "float16"}
# cudnn::cnn::wgrad_alg0_engine<float, 128, ...>, winogradForwardData4x4<float, float>(...).
_CUDNN_TEMPLATE = re.compile(r"(?:_engine|_s?gemm|\bwinograd\w+)<([a-zA-Z_]\w*),")


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
    decoded = (decode(name) for name in kernels)
    algorithms = (_FAST_ALGORITHMS.get(each.algorithm) for each in decoded if each is not None)
    found = {algorithm for algorithm in algorithms if algorithm is not None}
    return found.pop() if len(found) == 1 else None


def product_element_type(kernels: Iterable[str]) -> DType | None:
    """The type of the operands that all names of cuBLAS and cuDNN telling one agree on, or None."""
    found: set[DType | None] = set()
    for name in kernels:
        found |= {dtypes.named(_LETTERS[match[1]]) for match in _BLAS_LETTER.finditer(name)}
        found |= {dtypes.parse(match[1]) for match in _CUDNN_TEMPLATE.finditer(name)}
    return found.pop() if len(found) == 1 else None
