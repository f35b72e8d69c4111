"""Winograd F(4x4, 3x3): 36 products for sixteen outputs instead of 144.

Against winograd-2x2: larger tiles overlap less, so 4 times fewer products and 2.25 times x gathered
instead of four; but the transforms have constants up to 5 and 8, which amplify rounding: in fp16
the result is about 0.4 % off instead of 0.06 %.

FLOPs by definition: 2 N K P Q C 9. Executed: 36 GEMMs of K x C x (tiles of 4 x 4 outputs), 4 times
fewer, and the transforms: 162 / (18 K) + 72 / (18 C) of the definition's FLOPs.
Bytes: compulsory. Expected: every step's operands and results, as winograd-2x2.
Measured: FLOPs 1.29 times in fp16 and 1.23 in fp32, as the library pads the 36 and 16 rows of the
transforms to its tiles; read 0.96 and 0.99 times what is expected, as overlapping tiles meet in the
L2.

Source: as winograd-2x2.
"""

from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.convolution.winograd import prepare_winograd
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ConvolutionProblem) -> Prepared:
    """3 x 3 filters, stride and dilation 1, no groups."""
    return prepare_winograd(problem, 4)
