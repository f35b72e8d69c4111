"""Element types of calls whose record has shapes alone, from the names of their kernels.

Ranges of torch's autograd in a recording of Nsight Systems have no types, nor have traces of torch
1.8. Kernels of products, convolutions, norms and softmax name the type of their operands, which is
that of each tensor of the call; so do elementwise ones that convert nothing. What a mask, an index
or a copy between two types moves they do not tell, and it stays unknown.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gpuprof.roofline import dtypes
from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.dtypes import DType
from gpuprof.roofline.kernel_names.decode import decode
from gpuprof.roofline.kernel_names.product_arithmetic import product_arithmetic

TYPES_BY_KERNELS: Final = "the trace has no element types; those of the kernels' names count"
# The precision of a kernel's operands, and their type in memory. One of fp8 has two.
_TYPES: Final = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
}
_FLOAT32_BITS: Final = 32
_OF_ONE_TYPE: Final = ("gemm", "convolution", "norm", "softmax")
# Kernels that read the type that they compute in (aten/src/ATen/native/cuda/Loops.cuh,
# CUDALoops.cuh, Reduce.cuh); the others may cast at each load.
_WITHOUT_CASTS: Final = (
    "::vectorized_elementwise_kernel<",
    "gpu_kernel_impl_nocast",
    "reduce_kernel<",
)
_ELEMENTWISE: Final = re.compile(
    r"^aten::(?:add|sub|mul|div|neg|exp|sqrt|rsqrt|pow|relu|sum|mean"
    r"|(?:gelu|silu|tanh|sigmoid)(?:_backward)?)_?$"
)


def with_types(call: OpCall) -> OpCall:
    """`call`, its tensors of the type that its kernels name; itself where it has types.

    A tensor without axes may be a number: it stays as it was.
    """
    tensors = [each for each in call.arguments if isinstance(each, Tensor)]
    if not tensors or any(tensor.dtype is not None for tensor in tensors):
        return call
    dtype = _named_type(call.name, call.kernels)
    if dtype is None:
        return call
    arguments = tuple(
        replace(each, dtype=dtype) if isinstance(each, Tensor) and each.shape else each
        for each in call.arguments
    )
    told = product_arithmetic(call.kernels)
    matters = told is not None and (dtype.bits == _FLOAT32_BITS or told.tensor_cores is False)
    return replace(call, arguments=arguments, arithmetic=told if matters else None)


def _named_type(name: str, kernels: Iterable[str]) -> DType | None:
    found = set()
    for kernel in kernels:
        decoded = decode(kernel)
        if decoded is None or decoded.surrounds:
            continue
        elementwise = _ELEMENTWISE.match(name) and any(part in kernel for part in _WITHOUT_CASTS)
        if decoded.function in _OF_ONE_TYPE or elementwise:
            found.add(_TYPES.get(decoded.precision))
    return dtypes.named(only) if len(found) == 1 and (only := found.pop()) else None
