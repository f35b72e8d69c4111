"""torch's FlashAttention-2; on the CPU its own flash kernel.

Source: Dao, "FlashAttention-2" (2023). FLOPs: 4 D a pair forward, 10 D backward, of whole tiles, at
D = 128 of 128 queries by 64 or 128 keys, so that 3.1 % more than the kept pairs execute for a
causal mask at S = 4096. It uses Ampere's instructions (mma.sync, cp.async), not Hopper's.

Bytes: compulsory and a float32 log-sum-exp a row; backward accumulates dQ in float32 by atomics,
B H S D x 4 bytes cleared, added to and converted. Counted on an H100 (S = 4096) forward reads 1.27
times that, keys and values again; backward reads 1.7 and writes 1.3 times, as what it accumulates
leaves the L2 between additions.
"""

from torch.nn.attention import SDPBackend

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.attention.torch_sdpa import prepare_backend, tile_flops
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: AttentionProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    known = problem.work()
    statistics = 0 if problem.backward else 4 * problem.batch * problem.heads * problem.length
    accumulated = 4 * problem.query.numel() if problem.backward else 0
    return prepare_backend(
        problem,
        SDPBackend.FLASH_ATTENTION,
        executed_flops=tile_flops(problem, 128, 128),
        expected_bytes_read=known.bytes_read + accumulated,
        expected_bytes_written=known.bytes_written + statistics + accumulated,
    )
