"""Attention by three kernels: scores, softmax and product, each through memory.

Source: Vaswani et al., "Attention Is All You Need" (2017), equation 1. FLOPs: 4 D a pair, masked
pairs too (`executed_flops`). Expected bytes: compulsory, and the scores, B H S^2 elements, written
and read again between the kernels: once each for the product and the softmax, once more where a
causal mask is filled in. At S = 4096 that is 16 to 24 times the compulsory bytes. The mask itself,
S^2 bytes, is read for each head, partly from L2: an H100 was counted to read 12 % more so.
"""

import math

import torch

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops


def prepare(problem: AttentionProblem) -> Prepared:
    """Forward without grouped heads: torch's batched product has no shared operand."""
    if problem.mode not in ("forward", "causal-forward") or problem.group > 1:
        raise UnsupportedError("attention/naive has only the forward, each query head with its own")
    batch, heads, length, size = problem.query.shape
    query, key, value = (t.flatten(0, 1) for t in (problem.query, problem.key, problem.value))
    scores = torch.empty(batch * heads, length, length, dtype=query.dtype, device=query.device)
    weights = torch.empty_like(scores)
    output = torch.empty_like(problem.query)
    flat = output.flatten(0, 1)
    hidden = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)

    def call() -> None:
        # beta = 0: the first argument is not read.
        torch.baddbmm(scores, query, key.transpose(1, 2), beta=0, alpha=problem.scale, out=scores)
        if problem.causal:
            scores.masked_fill_(hidden, -math.inf)
        torch.softmax(scores, -1, out=weights)
        torch.bmm(weights, value, out=flat)

    known = problem.work()
    executed = 4 * size * batch * heads * length * length
    return Prepared(
        call=call,
        outputs=(output,),
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        expected_bytes_read=known.bytes_read + (3 if problem.causal else 2) * scores.nbytes,
        expected_bytes_written=known.bytes_written + (3 if problem.causal else 2) * scores.nbytes,
    )
