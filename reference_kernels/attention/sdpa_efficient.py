"""torch's memory-efficient attention: CUTLASS kernels from xFormers.

Source: Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory" (2021); scores stay on the
chip. FLOPs: 4 D a pair forward, 10 D backward, of its tiles (64 or 128 by 64 or 128, by GPU and
head size, which the library does not tell); on Hopper by Ampere's instructions. Bytes: compulsory,
and a float32 log-sum-exp a row where gradients are wanted. It has no grouped heads.
"""

from torch.nn.attention import SDPBackend

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.attention.torch_sdpa import prepare_backend
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: AttentionProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    return prepare_backend(problem, SDPBackend.EFFICIENT_ATTENTION)
