"""cuDNN in NHWC, only algorithms that give the same bits every time.

What torch.backends.cudnn.deterministic asks for. Forward convolutions seldom split their sums
among blocks, so it costs little here; for gradients of weights it does.

FLOPs, bytes, source: as cudnn.
"""

from gpuprof.reference_kernels.convolution.cudnn_call import prepare_cudnn
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size without +bn-relu."""
    return prepare_cudnn(problem, benchmark=True, deterministic=True)
