"""Cost models of operators, one module per family.

Importing the package registers them all. `cost_model` is also the way for a program to register
its own operators.
"""

from gpuprof.roofline.cost_models import (  # noqa: F401  (imported to register)
    attention,
    collective,
    convolution,
    elementwise,
    fused_layers,
    gemm,
    indexing,
    inductor,
    library_gemm,
    loss,
    movement,
    normalization,
    optimizer,
    pooling,
    quantized_gemm,
    recurrent,
    reduction,
    softmax,
)
from gpuprof.roofline.cost_models.registry import (
    cost_model,
    cost_of,
    cost_of_kernel,
    is_composite,
    is_modelled,
    is_modelled_kernel,
    is_view,
)

__all__ = [
    "cost_model",
    "cost_of",
    "cost_of_kernel",
    "is_composite",
    "is_modelled",
    "is_modelled_kernel",
    "is_view",
]
