"""Convolution, batch norm and ReLU in one cuDNN kernel, NHWC.

Against torch-unfused: batch norm at inference is a scale and a shift of each output channel, so
the scale goes into the weights beforehand and the shift becomes a bias (folding); cuDNN adds it and
applies ReLU before the result leaves the registers. Two reads and two writes of y are saved.

FLOPs: as cudnn, and two for each output (bias, maximum) instead of five.
Bytes: compulsory. Expected: compulsory.
Measured: FLOPs and read within 1 %.

Source: cuDNN's runtime fusion; torch's own operator for it, torch.cudnn_convolution_relu.
"""

import torch

from gpuprof.reference_kernels.convolution.cudnn_call import algorithm_of
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Only for +bn-relu."""
    weight, bias = problem.folded()
    if bias is None:
        raise UnsupportedError("cudnn-fused needs a size with +bn-relu")
    x = problem.x.contiguous(memory_format=torch.channels_last)
    weight = weight.contiguous(memory_format=torch.channels_last)
    out = problem.new_output(torch.channels_last)

    def call() -> None:
        flags = {"benchmark": True, "deterministic": False, "allow_tf32": problem.dtype == "tf32"}
        with torch.backends.cudnn.flags(enabled=True, **flags):
            # It allocates its result and takes no place for it: `out` becomes that tensor.
            out.data = torch.cudnn_convolution_relu(
                x,
                weight,
                bias,
                [problem.stride] * 2,
                [problem.padding] * 2,
                [problem.dilation] * 2,
                problem.groups,
            )

    call()
    return Prepared(call, (out,), note=algorithm_of(call))
