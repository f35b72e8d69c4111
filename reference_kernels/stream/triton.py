"""Copy and triad in Triton: each program one block of the arrays.

FLOPs: 0 for a copy, 2 n for a triad, as one fused multiply-add an element. Compulsory and expected
bytes: 2 and 3 arrays.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from functools import partial

import torch
import triton
import triton.language as tl

from gpuprof.reference_kernels.stream.problem import SCALE, Stream
from gpuprof.reference_kernels.suite import Prepared

_BLOCK_BYTES = 4096
_WARPS = 4


@triton.jit
def copy(a, output, count, BLOCK: tl.constexpr):
    """output = a, of `count` elements."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(output + place, tl.load(a + place, mask=inside), mask=inside)


@triton.jit
def triad(a, b, output, count, scale, BLOCK: tl.constexpr):
    """output = a + scale * b, computed in float32."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    first = tl.load(a + place, mask=inside).to(tl.float32)
    second = tl.load(b + place, mask=inside).to(tl.float32)
    result = first + scale * second
    tl.store(output + place, result.to(output.dtype.element_ty), mask=inside)


def prepare(problem: Stream) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    output = torch.empty_like(problem.a)
    count = problem.elements
    block = _BLOCK_BYTES // output.element_size()
    grid = (triton.cdiv(count, block),)
    options = {"BLOCK": block, "num_warps": _WARPS}
    if problem.b is None:
        call = partial(copy[grid], problem.a, output, count, **options)
    else:
        call = partial(triad[grid], problem.a, problem.b, output, count, SCALE, **options)
    return Prepared(call, (output,), note=f"{block} elements a program, {_WARPS} warps")
