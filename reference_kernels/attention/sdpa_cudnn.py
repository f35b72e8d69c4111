"""cuDNN's fused attention through torch: on Hopper the fastest of torch's backends.

The algorithm is FlashAttention's with Hopper's instructions (wgmma, TMA) and warps with roles of
their own. Source: Shah et al., "FlashAttention-3" (2024). FLOPs: 4 D a pair forward, 10 D backward,
of whole tiles, at D = 128 of 128 by 128: 3.1 % more than the kept pairs for a causal mask at
S = 4096.

Bytes: compulsory, and a float32 log-sum-exp a row where gradients are wanted. Backward was counted
to read 2.0 and write 1.9 times the compulsory bytes on an H100: a first kernel reads O and dO, and
dQ is accumulated in float32 and converted by a third.
"""

from torch.nn.attention import SDPBackend

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.attention.torch_sdpa import prepare_backend, tile_flops
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: AttentionProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    return prepare_backend(
        problem, SDPBackend.CUDNN_ATTENTION, executed_flops=tile_flops(problem, 128, 128)
    )
