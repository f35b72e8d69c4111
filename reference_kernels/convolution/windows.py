"""What the two implicit GEMMs share: tiles of output pixels and channels, windows, epilogue."""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import torch
import triton
import triton.language as tl

from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.gemm.tiles import SMALL, Tiling
from gpuprof.roofline.cost_models.cost import Flops

__all__ = [
    "CONFIGURATIONS",
    "SMALL",
    "Tiling",
    "lay_out_filters",
    "padded_flops",
    "store_tile",
    "tile_of_program",
    "window_origins",
]

_SIXTEEN_BIT = (
    Tiling(128, 64, 64, warps=4, stages=4),
    Tiling(128, 128, 64, warps=8, stages=3),
    Tiling(128, 128, 64, warps=4, stages=4),
    Tiling(128, 256, 64, warps=8, stages=3),
    Tiling(128, 256, 64, warps=8, stages=4),
    Tiling(64, 256, 64, warps=4, stages=4),
)
CONFIGURATIONS = {
    "fp16": _SIXTEEN_BIT,
    "bf16": _SIXTEEN_BIT,
    "tf32": (
        Tiling(128, 64, 32, warps=4, stages=4),
        Tiling(128, 128, 32, warps=8, stages=3),
    ),
}


@triton.jit
def tile_of_program(k, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """Output pixels and channels of this program. Blocks of channels come first: the programs
    that read the same windows run at the same time."""
    blocks_n = tl.cdiv(k, TILE_N)
    block = tl.program_id(0)
    rows = block // blocks_n * TILE_M + tl.arange(0, TILE_M)
    columns = block % blocks_n * TILE_N + tl.arange(0, TILE_N)
    return rows, columns


@triton.jit
def window_origins(rows, p, q, stride, padding):
    """Image and upper left corner, in x, of the window of each output pixel."""
    image = rows // (p * q)
    in_image = rows % (p * q)
    return image, in_image // q * stride - padding, in_image % q * stride - padding


@triton.jit
def store_tile(sums, y_base, bias_base, rows, columns, pixels, k, BIAS_AND_RELU: tl.constexpr):
    """Write the accumulators to y, NHWC, through bias and ReLU where wanted."""
    group = tl.program_id(1)
    all_k = k * tl.num_programs(1)
    in_k = columns < k
    if BIAS_AND_RELU:
        bias = tl.load(bias_base + group * k + columns, mask=in_k, other=0.0)
        sums = tl.maximum(sums + bias.to(tl.float32)[None, :], 0.0)
    y_tile = y_base + rows.to(tl.int64)[:, None] * all_k + (group * k + columns)[None, :]
    result = sums.to(y_base.dtype.element_ty)
    tl.store(y_tile, result, mask=(rows < pixels)[:, None] & in_k[None, :])


def lay_out_filters(weight: torch.Tensor, groups: int, dtype: str) -> torch.Tensor:
    """[K, C / groups, R, S] as a view [groups, R S C / groups, K / groups], C fastest of R, S, C.

    In memory K is fastest for 16-bit types, which was measured faster, and slowest for tf32: wgmma
    takes 32-bit operands from shared memory only along what is summed.
    """
    k, c, r, s = weight.shape
    by_filter = weight.permute(0, 2, 3, 1).reshape(groups, k // groups, r * s * c)
    by_value = by_filter.transpose(1, 2)
    return by_value if dtype == "tf32" else by_value.contiguous()


def padded_flops(problem: ConvolutionProblem, tiling: Tiling, depth: int) -> tuple[Flops, ...]:
    """FLOPs of whole tiles `depth` deep, and of the epilogue: two for each output."""
    pixels = problem.n * problem.p * problem.q
    rows = -(-pixels // tiling.tile_m) * tiling.tile_m
    columns = -(-problem.k // problem.groups // tiling.tile_n) * tiling.tile_n
    products = Flops("matmul", problem.dtype, 2 * rows * columns * problem.groups * depth)
    if problem.batch_norm is None:
        return (products,)
    return products, Flops("vector", "fp32", 2 * pixels * problem.k)
