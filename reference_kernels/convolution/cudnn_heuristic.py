"""cuDNN in NHWC with the algorithm that its heuristic expects to be fastest: torch's default.

Against cudnn: no algorithm is tried, so the first call costs nothing extra, and sometimes every
later one a little.

FLOPs, bytes, source: as cudnn.
"""

from gpuprof.reference_kernels.convolution.cudnn_call import prepare_cudnn
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size without +bn-relu."""
    return prepare_cudnn(problem, benchmark=False)
