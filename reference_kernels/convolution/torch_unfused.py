"""torch's operators one by one, as a model's code says them: conv2d, batch_norm, relu; NHWC.

Without "+bn-relu" it is conv2d alone: cuDNN on a GPU, oneDNN on a CPU. With it, each step is a
kernel that reads and writes all of y: compare cudnn-fused and implicit-gemm, which do the same in
one pass.

FLOPs: as the problem. Bytes: compulsory. Expected with "+bn-relu": y written three times and read
twice; cuDNN adds the bias in a pass of its own (once more each).
Measured: with +bn-relu FLOPs and read within 1 % of what is expected; without, as cudnn.

Source: Ioffe and Szegedy, "Batch normalization", 2015.
"""

import torch
import torch.nn.functional as F

from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size."""
    x = problem.x.contiguous(memory_format=torch.channels_last)
    weight = problem.weight.contiguous(memory_format=torch.channels_last)
    out = problem.new_output(torch.channels_last)
    norm = problem.batch_norm

    def convolve(bias: torch.Tensor | None) -> torch.Tensor:
        flags = {"benchmark": True, "deterministic": False, "allow_tf32": problem.dtype == "tf32"}
        with torch.backends.cudnn.flags(enabled=True, **flags):
            return F.conv2d(
                x,
                weight,
                bias,
                stride=problem.stride,
                padding=problem.padding,
                dilation=problem.dilation,
                groups=problem.groups,
            )

    # conv2d, batch_norm and relu take no place for their results: `out` becomes the last one.
    if norm is None:

        def call() -> None:
            out.data = convolve(None)

        return Prepared(call, (out,))

    def call_layer() -> None:
        y = convolve(norm.bias)
        normalized = F.batch_norm(
            y, norm.mean, norm.variance, norm.gamma, norm.beta, training=False, eps=norm.epsilon
        )
        out.data = F.relu(normalized)

    work = problem.work()
    # The bias, batch norm and ReLU: each reads and writes y once.
    passes = 3 * out.numel() * out.element_size()
    return Prepared(
        call_layer,
        (out,),
        expected_bytes_read=work.bytes_read + passes,
        expected_bytes_written=work.bytes_written + passes,
    )
