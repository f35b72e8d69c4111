"""Implicit GEMM with a table of offsets: no index arithmetic in the loop, any number of channels.

Against implicit-gemm: a step takes TILE_K of the R S C values of a window, wherever taps end, so
few channels (the first layer's three) waste no tile. Where value j lies from a window's corner does
not depend on the window: the offsets are computed once, as a table. Whether tap t of a window lies
in the padding does depend on it: each row keeps a bit for each tap, and the loop tests one bit
instead of four bounds.

FLOPs: 2 N K P Q (C / groups) R S on the tensor cores, rows, columns and R S C rounded up to the
tile.
Bytes: compulsory, and 8 bytes for each of a window's values for the tables. Expected: the same.
Measured: FLOPs exact, read within 1 %.

Source: cuDNN's IMPLICIT_PRECOMP_GEMM; CUTLASS's "optimized" iterator, with its masks of bits.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import torch
import triton
import triton.language as tl

from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.convolution.windows import (
    CONFIGURATIONS,
    SMALL,
    Tiling,
    lay_out_filters,
    padded_flops,
    store_tile,
    tile_of_program,
    window_origins,
)
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest

# Bits of a row's mask of either width; the one above the last tap stays 0, for what lies past the
# window's end, and the sign is left alone.
_MOST_TAPS_IN_32_BITS, _MOST_TAPS = 30, 62
# The tables are as long as the largest TILE_K rounds up to.
_TABLE_MULTIPLE = 64


@triton.jit
def _convolve(
    x_base,
    weight_base,
    bias_base,
    y_base,
    filter_value_stride,
    filter_stride,
    offsets_base,
    taps_base,
    pixels,
    c,
    h,
    w,
    k,
    p,
    q,
    stride,
    padding,
    dilation,
    R: tl.constexpr,
    S: tl.constexpr,
    # As many neighbouring values share a tap: what one load may take.
    VECTOR: tl.constexpr,
    MASK_DTYPE: tl.constexpr,
    BIAS_AND_RELU: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    group = tl.program_id(1)
    all_c = c * tl.num_programs(1)
    rows, columns = tile_of_program(k, TILE_M, TILE_N)
    image, top, left = window_origins(rows, p, q, stride, padding)
    inside = tl.zeros((TILE_M,), dtype=MASK_DTYPE)
    for tap in tl.static_range(R * S):
        y_at = top + tap // S * dilation
        x_at = left + tap % S * dilation
        in_image = (rows < pixels) & (y_at >= 0) & (y_at < h) & (x_at >= 0) & (x_at < w)
        inside |= in_image.to(MASK_DTYPE) << tap
    windows = x_base + ((image.to(tl.int64) * h + top) * w + left) * all_c + group * c
    depth = R * S * c
    weights = weight_base + group * depth * k + columns * filter_stride
    in_k = (columns < k)[None, :]
    sums = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for start in range(0, depth, TILE_K):
        at = start + tl.arange(0, TILE_K)
        offsets = tl.load(offsets_base + at)
        taps = tl.load(taps_base + at)
        offsets = tl.max_contiguous(tl.multiple_of(offsets, VECTOR), VECTOR)
        taps = tl.max_constancy(taps, VECTOR)
        mask = (inside[:, None] >> taps.to(MASK_DTYPE)[None, :]) & 1
        a = tl.load(windows[:, None] + offsets[None, :], mask=mask != 0, other=0.0)
        b = tl.load(
            weights[None, :] + at[:, None] * filter_value_stride,
            mask=(at < depth)[:, None] & in_k,
            other=0.0,
        )
        sums = tl.dot(a, b, sums)
    store_tile(sums, y_base, bias_base, rows, columns, pixels, k, BIAS_AND_RELU)


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Filters of at most 62 taps; on a CPU (Triton's interpreter) with one small tile."""
    window_taps = problem.r * problem.s
    if window_taps > _MOST_TAPS:
        raise UnsupportedError(f"implicit-precomputed takes at most {_MOST_TAPS} taps")
    weight, bias = problem.folded()
    c, k = problem.c // problem.groups, problem.k // problem.groups
    pixels = problem.n * problem.p * problem.q
    x = problem.x.contiguous(memory_format=torch.channels_last)
    filters = lay_out_filters(weight, problem.groups, problem.dtype)
    out = problem.new_output(torch.channels_last)
    offsets, taps = _tables(problem)

    def run(tiling: Tiling) -> None:
        blocks = -(-pixels // tiling.tile_m) * -(-k // tiling.tile_n)
        _convolve[(blocks, problem.groups)](
            x,
            filters,
            # Without one it is not read.
            x if bias is None else bias,
            out,
            filters.stride(1),
            filters.stride(2),
            offsets,
            taps,
            pixels,
            c,
            problem.h,
            problem.w,
            k,
            problem.p,
            problem.q,
            problem.stride,
            problem.padding,
            problem.dilation,
            R=problem.r,
            S=problem.s,
            VECTOR=8 if c % 8 == 0 else 1,
            MASK_DTYPE=tl.int32 if window_taps <= _MOST_TAPS_IN_32_BITS else tl.int64,
            BIAS_AND_RELU=bias is not None,
            TILE_M=tiling.tile_m,
            TILE_N=tiling.tile_n,
            TILE_K=tiling.tile_k,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )

    on_gpu = problem.device.type == "cuda"
    tiling = fastest(CONFIGURATIONS[problem.dtype], run) if on_gpu else SMALL
    depth = -(-window_taps * c // tiling.tile_k) * tiling.tile_k
    work = problem.work()
    tables = 2 * window_taps * c * offsets.element_size()
    return Prepared(
        lambda: run(tiling),
        (out,),
        executed_flops=padded_flops(problem, tiling, depth),
        expected_bytes_read=work.bytes_read + tables,
        expected_bytes_written=work.bytes_written,
        note=str(tiling),
    )


def _tables(problem: ConvolutionProblem) -> tuple[torch.Tensor, torch.Tensor]:
    """For each value of a window, channels fastest: its offset from the corner in x, its tap.

    Both int32, rounded up with offset 0 and a tap whose bit is never set.
    """
    c, taps = problem.c // problem.groups, problem.r * problem.s
    tap = torch.arange(taps, dtype=torch.int32).repeat_interleave(c)
    down, right = tap // problem.s * problem.dilation, tap % problem.s * problem.dilation
    channel = torch.arange(c, dtype=torch.int32).repeat(taps)
    offset = (down * problem.w + right) * problem.c + channel
    rest = -len(tap) % _TABLE_MULTIPLE
    pad = torch.nn.functional.pad
    return (
        pad(offset, (0, rest)).to(problem.device),
        pad(tap, (0, rest), value=taps).to(problem.device),
    )
