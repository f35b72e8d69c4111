"""CUDA C++, straight from the definition, NCHW: no matrix is built and nothing transformed.

A thread owns one output pixel of eight channels: it loads each value of its window once and uses it
eight times; neighbouring threads own neighbouring pixels, so these loads coalesce, and overlapping
windows meet in the L1. The weights, eight to a load, are the same for all threads of a block.
Nothing is shared by hand and no tensor core is used: this is the floor that the others rise from.

FLOPs: 2 N K P Q (C / groups) R S on the FP32 units, K of a group rounded up to 8; products with
padding's zeros are done.
Bytes: compulsory. Expected: compulsory; x is walked once for every eight output channels, from the
L2 as long as an image fits there.
Measured: FLOPs and read exact; written 0.55 times.

Source: the definition.
"""

from pathlib import Path

import numpy as np
import torch

from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of, compile_source
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

_THREADS = 128
_CHANNELS = 8


def compile_kernel(architecture: str) -> CudaKernel:
    """The kernel for `architecture` ("sm_90a"); needs no GPU."""
    source = Path(__file__).with_suffix(".cu")
    program = compile_source(source.read_text(), architecture=architecture, name=source.name)
    return CudaKernel(program, "convolve")


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size without +bn-relu; the weights are laid out with eight channels side by side."""
    if problem.batch_norm is not None:
        raise UnsupportedError("direct has no +bn-relu")
    kernel = compile_kernel(architecture_of(problem.device))
    groups, k = problem.groups, problem.k // problem.groups
    c = problem.c // groups
    channel_blocks = -(-k // _CHANNELS)
    by_group = problem.weight.view(groups, k, c, problem.r, problem.s).permute(0, 2, 3, 4, 1)
    weight = torch.nn.functional.pad(by_group, (0, channel_blocks * _CHANNELS - k)).contiguous()
    x, out = problem.x, problem.new_output(torch.contiguous_format)
    grid = (-(-problem.p * problem.q // _THREADS), channel_blocks * groups, problem.n)
    sizes = (
        *(c, problem.h, problem.w, k, problem.r, problem.s, problem.p, problem.q),
        *(problem.stride, problem.padding, problem.dilation, groups),
    )
    arguments = tuple(np.int32(size) for size in sizes)
    pixels = problem.n * problem.p * problem.q
    executed = 2 * pixels * groups * channel_blocks * _CHANNELS * c * problem.r * problem.s
    return Prepared(
        lambda: kernel.launch(grid, (_THREADS, 1, 1), x, weight, out, *arguments),
        (out,),
        executed_flops=(Flops("matmul", "fp32", executed),),
    )
