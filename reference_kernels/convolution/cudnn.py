"""cuDNN in NHWC, the layout its tensor-core kernels take, after trying all its algorithms.

FLOPs: by definition 2 N K P Q (C / groups) R S; an algorithm by Winograd or FFT executes fewer, and
the kernel's name, in the note, says so.
Bytes: compulsory. Expected: compulsory: windows overlap, but their rows stay in the L2.
Measured: FLOPs exact and read within 1 % in fp16 (implicit GEMM). In fp32 the same size is done by
FFT: FLOPs 0.37 times the definition's, read 15.7 times and written 13 times compulsory, for the
spectra and the way to NCHW and back.

Source: Chetlur et al., "cuDNN: efficient primitives for deep learning", 2014.
"""

from gpuprof.reference_kernels.convolution.cudnn_call import prepare_cudnn
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size without +bn-relu."""
    return prepare_cudnn(problem, benchmark=True)
