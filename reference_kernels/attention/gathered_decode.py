"""Decoding by copying a sequence's pages together, then torch's attention on the copy.

FLOPs: 4 D a (query head, token) pair, the padding to whole pages too; torch 2.11 was counted to
execute 4 times that on an H100, on tiles with more rows than the one query. Expected bytes:
compulsory, and keys and values read twice and written twice more: as pages out of order, then as
rows of a sequence.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from gpuprof.reference_kernels.attention.problem import PAGE_TOKENS, AttentionProblem
from gpuprof.reference_kernels.library_outputs import adopt, empty_outputs
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops


def prepare(problem: AttentionProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    if problem.mode != "decode":
        raise UnsupportedError("attention/gathered-decode has only decode")
    batch, pages = problem.block_table.shape
    order = problem.block_table.flatten().long()
    tokens = torch.arange(pages * PAGE_TOKENS, device=problem.device)
    visible = (tokens[None] < problem.lengths[:, None])[:, None, None]
    outputs = empty_outputs(1, problem.device)

    def gather(source: torch.Tensor) -> torch.Tensor:
        chosen = source[order].view(batch, pages, problem.key_heads, PAGE_TOKENS, problem.head_size)
        return chosen.transpose(1, 2).flatten(2, 3)

    def call() -> None:
        with torch.no_grad():
            result = scaled_dot_product_attention(
                problem.query[:, :, None],
                gather(problem.key_pages),
                gather(problem.value_pages),
                attn_mask=visible,
                enable_gqa=problem.group > 1,
            )
            adopt(outputs, (result[:, :, 0],))

    known = problem.work()
    # The pages once as they lie, and once more as rows of the sequence.
    copied = 2 * (problem.key_pages.nbytes + problem.value_pages.nbytes)
    executed = 4 * problem.head_size * problem.heads * batch * pages * PAGE_TOKENS
    return Prepared(
        call=call,
        outputs=outputs,
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        expected_bytes_read=known.bytes_read + copied,
        expected_bytes_written=known.bytes_written + copied,
    )
