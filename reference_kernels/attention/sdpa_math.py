"""torch's SDPA by plain operators, the reference of its other backends.

FLOPs: 4 D a pair forward, masked pairs too, 8 D backward (the scores are kept). bf16 and fp16 are
widened to float32 unless torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp is set, so that the
products run at float32's rate, and a causal mask is a tensor that is added.

Bytes: the float32 scores, 4 B H S^2, several times over, how often differs by torch's version and
so is not in `expected_bytes_read`. Counted on an H100 with torch 2.11: forward 7.5 times read and
4.9 written, backward 7.3 and 3.1.
"""

from torch.nn.attention import SDPBackend

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.attention.torch_sdpa import prepare_backend
from gpuprof.reference_kernels.suite import Prepared
from gpuprof.roofline.cost_models.cost import Flops


def prepare(problem: AttentionProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    pairs = problem.batch * problem.heads * problem.length**2
    product = (8 if problem.backward else 4) * problem.head_size
    return prepare_backend(
        problem,
        SDPBackend.MATH,
        executed_flops=(Flops("matmul", "fp32", product * pairs),),
    )
