"""Implicit GEMM in Triton, NHWC: the im2col matrix exists only tile by tile, in shared memory.

Against im2col: the same product, with N P Q rows of windows, R S (C / groups) deep, and K columns,
but each tile of windows is gathered from x as it is loaded, so the ninefold matrix never travels
through memory. In NHWC the channels of one tap of a window are neighbours: a step of the loop
takes one tap and TILE_C channels, in 16-byte loads, and padding is a mask that holds for a whole
row.

With "+bn-relu" the batch norm is folded into the weights beforehand, and bias and ReLU are applied
to the accumulators before they are stored: y is written once, finished.

FLOPs: 2 N K P Q (C / groups) R S on the tensor cores, rows, columns and channels rounded up to the
tile.
Bytes: compulsory. Expected: compulsory; overlapping windows meet in the L2.
Measured: FLOPs exact, read within 1 %.

Source: Chetlur et al., "cuDNN", 2014, section 3; CUTLASS's implicit GEMM convolution.
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
from gpuprof.reference_kernels.suite import Prepared
from gpuprof.reference_kernels.tuning import fastest


@triton.jit
def _convolve(
    x_base,
    weight_base,
    bias_base,
    y_base,
    filter_value_stride,
    filter_stride,
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
    EVEN: tl.constexpr,
    BIAS_AND_RELU: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_C: tl.constexpr,
):
    group = tl.program_id(1)
    all_c = c * tl.num_programs(1)
    rows, columns = tile_of_program(k, TILE_M, TILE_N)
    image, top, left = window_origins(rows, p, q, stride, padding)
    channels = tl.arange(0, TILE_C)
    # May lie before x where a window begins in the padding; masked, then.
    windows = x_base + ((image.to(tl.int64) * h + top) * w + left) * all_c + group * c
    weights = weight_base + group * R * S * c * k + columns * filter_stride
    sums = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    steps_a_tap = tl.cdiv(c, TILE_C)
    for step in range(R * S * steps_a_tap):
        tap = step // steps_a_tap
        first = step % steps_a_tap * TILE_C
        down = tap // S * dilation
        right = tap % S * dilation
        y_at = top + down
        x_at = left + right
        inside = (rows < pixels) & (y_at >= 0) & (y_at < h) & (x_at >= 0) & (x_at < w)
        x_tile = windows[:, None] + (down * w + right) * all_c + first + channels[None, :]
        values = (tap * c + first + channels) * filter_value_stride
        weight_tile = weights[None, :] + values[:, None]
        if EVEN:
            a = tl.load(x_tile, mask=inside[:, None], other=0.0)
            b = tl.load(weight_tile)
        else:
            some = first + channels < c
            a = tl.load(x_tile, mask=inside[:, None] & some[None, :], other=0.0)
            b = tl.load(weight_tile, mask=some[:, None] & (columns < k)[None, :], other=0.0)
        sums = tl.dot(a, b, sums)
    store_tile(sums, y_base, bias_base, rows, columns, pixels, k, BIAS_AND_RELU)


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size; on a CPU (Triton's interpreter) with one small tile."""
    weight, bias = problem.folded()
    c, k = problem.c // problem.groups, problem.k // problem.groups
    pixels = problem.n * problem.p * problem.q
    x = problem.x.contiguous(memory_format=torch.channels_last)
    filters = lay_out_filters(weight, problem.groups, problem.dtype)
    out = problem.new_output(torch.channels_last)

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
            EVEN=c % tiling.tile_k == k % tiling.tile_n == 0,
            BIAS_AND_RELU=bias is not None,
            TILE_M=tiling.tile_m,
            TILE_N=tiling.tile_n,
            TILE_C=tiling.tile_k,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )

    on_gpu = problem.device.type == "cuda"
    tiling = fastest(CONFIGURATIONS[problem.dtype], run) if on_gpu else SMALL
    taps = problem.r * problem.s
    depth = taps * -(-c // tiling.tile_k) * tiling.tile_k
    return Prepared(
        lambda: run(tiling),
        (out,),
        executed_flops=padded_flops(problem, tiling, depth),
        note=str(tiling),
    )
