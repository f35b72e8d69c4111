"""cuDNN in NHWC, the layout its tensor-core kernels take, after trying all its algorithms.

FLOPs: by definition 2 N K P Q (C / groups) R S; an algorithm by Winograd or FFT executes fewer, and
the kernel's name, in the note, says so.
Bytes: compulsory. Expected: compulsory: windows overlap, but their rows stay in the L2.

Source: Chetlur et al., "cuDNN: efficient primitives for deep learning", 2014.
"""

from gpuprof.reference_kernels.convolution.cudnn_call import prepare_cudnn
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size without +bn-relu."""
    return prepare_cudnn(problem, benchmark=True)
