"""cuDNN in NCHW, torch's default layout.

Against cudnn: channels are not neighbours in memory, so tensor-core kernels, which multiply along
channels, first need the input and then the output transposed. Those passes show in the kernels
that the note names.

FLOPs: as cudnn. Bytes: compulsory. Expected: compulsory where the kernel reads NCHW itself; one
more read and write of x and y where cuDNN transposes.
Measured: FLOPs exact in fp16; read 2.92 times compulsory, as x, the filters and y are transposed by
kernels of their own. In fp32 by FFT: see cudnn.

Source: as cudnn; NVIDIA's deep learning performance guide, "Convolutional layers".
"""

import torch

from gpuprof.reference_kernels.convolution.cudnn_call import prepare_cudnn
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size without +bn-relu."""
    return prepare_cudnn(problem, benchmark=True, memory_format=torch.contiguous_format)
