"""Explicit im2col, NCHW: every window becomes a column of a matrix, then one GEMM an image.

The fastest library routine does all the arithmetic, at the price of memory traffic: a 3 x 3 window
at stride 1 writes every input value nine times and reads it back.

FLOPs: 2 N K P Q (C / groups) R S, as a GEMM of K x (C R S) x (P Q) an image.
Bytes: compulsory. Expected: the matrix of N C R S P Q elements written and read on top. Less where
it fits the L2.
Measured: FLOPs 1.14 times in fp16 and 1.07 in fp32, as the GEMM's tiles cover 896 and 832 columns
instead of 784; read within 3 %.

Source: Chellapilla, Puri and Simard, "High performance convolutional neural networks for document
processing", 2006.
"""

import torch

from gpuprof.reference_kernels.calibration.gemm import float32_products
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size without +bn-relu."""
    if problem.batch_norm is not None:
        raise UnsupportedError("im2col has no +bn-relu")
    x, groups, n = problem.x, problem.groups, problem.n
    depth = problem.c // groups * problem.r * problem.s
    pixels = problem.p * problem.q
    columns = torch.empty(n, groups * depth, pixels, device=x.device, dtype=x.dtype)
    out = problem.new_output(torch.contiguous_format)
    out_by_group = out.view(n, groups, problem.k // groups, pixels)
    columns_by_group = columns.view(n, groups, depth, pixels)
    weight = problem.weight.view(groups, 1, problem.k // groups, depth).expand(-1, n, -1, -1)
    window = [[problem.r, problem.s]] + [
        [number] * 2 for number in (problem.dilation, problem.padding, problem.stride)
    ]

    def call() -> None:
        torch.ops.aten.im2col.out(x, *window, out=columns)
        with float32_products(tf32=problem.dtype == "tf32"):
            for group in range(groups):
                torch.bmm(weight[group], columns_by_group[:, group], out=out_by_group[:, group])

    work = problem.work()
    again = columns.numel() * columns.element_size()
    return Prepared(
        call,
        (out,),
        expected_bytes_read=work.bytes_read + again,
        expected_bytes_written=work.bytes_written + again,
    )
