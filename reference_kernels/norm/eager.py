"""Normalisation operator by operator.

FLOPs: those of the definition; an H100 executes 5.2 times as many for layer and 5.0 for rms, as
torch's kernels that broadcast a row's figure have two packed bf16 multiply-adds an element beside
their own operation. Expected bytes, in passes over the matrix: layer takes mean, difference,
square, mean of squares, scale, weight and bias, 7 reads and 5 writes; rms square, mean, scale and
weight, 4 reads and 3 writes; an H100 was counted to read so many. Columns of one element a row are
left out.
"""

import torch

from gpuprof.reference_kernels.norm.problem import EPSILON, NormProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: NormProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    x, weight, bias = problem.input, problem.weight, problem.bias
    output, scratch = torch.empty_like(x), torch.empty_like(x)
    of_row = torch.empty(x.shape[0], 1, dtype=x.dtype, device=x.device)

    def call() -> None:
        centred = x
        if bias is not None:
            torch.mean(x, 1, keepdim=True, out=of_row)
            centred = torch.sub(x, of_row, out=scratch)
        torch.square(centred, out=output)
        torch.mean(output, 1, keepdim=True, out=of_row)
        of_row.add_(EPSILON).rsqrt_()
        torch.mul(centred, of_row, out=output)
        torch.mul(output, weight, out=output)
        if bias is not None:
            torch.add(output, bias, out=output)

    reads, writes = (4, 3) if bias is None else (7, 5)
    return Prepared(
        call,
        (output,),
        expected_bytes_read=reads * x.nbytes,
        expected_bytes_written=writes * x.nbytes,
    )
