"""Winograd F(2x2, 3x3): 16 products for four outputs instead of 36.

FLOPs by definition: 2 N K P Q C 9. Executed: 16 GEMMs of K x C x (tiles of 2 x 2 outputs), 2.25
times fewer, and the transforms: as GEMMs with 16 x 16 and 4 x 16 matrices they cost
128 / (18 K) + 32 / (18 C) of the definition's FLOPs. So the effective rate is above the executed.
Bytes: compulsory. Expected: every step's operands and results, as the steps are torch's: the
gathered tiles are four times x, written and read twice. A fused kernel would save that.
Measured: FLOPs 1.28 times in fp16 and 1.10 in fp32, as the library pads the 16 and 4 rows of the
transforms to its tiles; read 0.99 and 1.14 times what is expected, as operands are read again for
each column of tiles.

Source: Lavin and Gray, CVPR 2016; Winograd, "Arithmetic complexity of computations", 1980.
"""

from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.convolution.winograd import prepare_winograd
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ConvolutionProblem) -> Prepared:
    """3 x 3 filters, stride and dilation 1, no groups."""
    return prepare_winograd(problem, 2)
