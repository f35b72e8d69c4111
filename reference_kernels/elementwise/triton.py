"""Elementwise operations in Triton: one pass, intermediate values in registers.

FLOPs: those of the definition; for gelu an H100 executes 7.1 times as many, the error function
being a polynomial of two branches, for swiglu as many, for rotary 1.08 times. Bytes: compulsory,
and so counted; the rotary tables are read once for each sequence and head, mostly from L2 (rotary
reads 5 % more in all).
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from collections.abc import Callable
from functools import partial

import triton
import triton.language as tl

from gpuprof.reference_kernels.elementwise.problem import ElementwiseProblem
from gpuprof.reference_kernels.suite import Prepared

_BLOCK_BYTES = 4096
_WARPS = 4


@triton.jit
def gelu(input, output, count, BLOCK: tl.constexpr):
    """Exact GELU of `count` elements."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(input + place, mask=inside).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))
    tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)


@triton.jit
def swiglu(gate, up, output, count, BLOCK: tl.constexpr):
    """silu(gate) * up of `count` elements."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    g = tl.load(gate + place, mask=inside).to(tl.float32)
    u = tl.load(up + place, mask=inside).to(tl.float32)
    y = g / (1.0 + tl.exp(-g)) * u
    tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)


@triton.jit
def rotary(
    input,
    cosine,
    sine,
    output,
    rows,
    length,
    heads,
    HALF: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Rotate `rows` = B * S * H heads of size 2 HALF; PADDED is the power of 2 from HALF on."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    pair = tl.arange(0, PADDED)[None, :]
    inside = (row < rows) & (pair < HALF)
    position = row // heads % length
    c = tl.load(cosine + position * HALF + pair, mask=inside)
    s = tl.load(sine + position * HALF + pair, mask=inside)
    place = row * 2 * HALF + pair
    first = tl.load(input + place, mask=inside).to(tl.float32)
    second = tl.load(input + place + HALF, mask=inside).to(tl.float32)
    dtype = output.dtype.element_ty
    tl.store(output + place, (first * c - second * s).to(dtype), mask=inside)
    tl.store(output + place + HALF, (second * c + first * s).to(dtype), mask=inside)


def prepare(problem: ElementwiseProblem) -> Prepared:
    output = problem.empty_output()
    block = _BLOCK_BYTES // output.element_size()
    call: Callable[[], object]
    if problem.operation == "rotary":
        batch, length, heads, size = problem.shape
        rows, padded = batch * length * heads, triton.next_power_of_2(size // 2)
        tile = max(1, block // (2 * padded))
        call = partial(
            rotary[(triton.cdiv(rows, tile),)],
            *problem.inputs,
            output,
            rows,
            length,
            heads,
            HALF=size // 2,
            PADDED=padded,
            ROWS=tile,
            num_warps=_WARPS,
        )
    else:
        kernel = gelu if problem.operation == "gelu" else swiglu
        count = output.numel()
        call = partial(
            kernel[(triton.cdiv(count, block),)],
            *problem.inputs,
            output,
            count,
            BLOCK=block,
            num_warps=_WARPS,
        )
    return Prepared(call, (output,), note=f"{block} elements a program, {_WARPS} warps")
