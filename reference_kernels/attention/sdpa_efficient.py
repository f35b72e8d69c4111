"""torch's memory-efficient attention: CUTLASS kernels from xFormers.

Source: Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory" (2021); scores stay on the
chip. FLOPs: 4 D a pair forward, 10 D backward, of whole tiles, at D = 128 of 64 queries by 128 keys
forward and 128 by 128 backward; on Hopper by Ampere's instructions. Bytes: compulsory, and a
float32 log-sum-exp a row where gradients are wanted; backward was counted to read 3.4 and write 4.5
times the compulsory bytes on an H100 (S = 4096), as it adds gradients up in global memory. It has
no grouped heads.
"""

from torch.nn.attention import SDPBackend

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.attention.torch_sdpa import prepare_backend, tile_flops
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: AttentionProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    return prepare_backend(
        problem,
        SDPBackend.EFFICIENT_ATTENTION,
        executed_flops=tile_flops(problem, 128 if problem.backward else 64, 128),
    )
