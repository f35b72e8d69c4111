"""cuDNN's fused attention through torch: on Hopper the fastest of torch's backends.

The algorithm is FlashAttention's with Hopper's instructions (wgmma, TMA) and warps with roles of
their own, as Shah et al., "FlashAttention-3" (2024), describe. FLOPs: 4 D a pair forward, 10 D
backward, of its tiles (128 by 128; 3.1 % more than the kept pairs for a causal mask at S = 4096).
Bytes: compulsory, and a float32 log-sum-exp a row where gradients are wanted.
"""

from torch.nn.attention import SDPBackend

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.attention.torch_sdpa import prepare_backend
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: AttentionProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    return prepare_backend(problem, SDPBackend.CUDNN_ATTENTION)
