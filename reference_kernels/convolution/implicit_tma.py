"""CUDA C++, NHWC: an implicit GEMM whose windows TMA finds.

Against implicit-gemm: no thread computes where a window's value lies, or whether it lies in the
padding. The copy engine is told of the image once, with its padding, stride and dilation, and
brings 64 channels of one tap of 128 windows for one instruction, zeros where they leave the image.
What is left is the product of gemm/cuda-persistent, over R S C / 64 tiles.

FLOPs: 2 N K P Q C R S on the tensor cores, pixels and K rounded up to the tile.
Bytes: compulsory. Expected: compulsory; each tap reads the windows again, from the L2.

Source: CUDA driver API, "cuTensorMapEncodeIm2col"; CUTLASS's im2col mainloops for Hopper.
"""

import torch

from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.hopper.product import (
    TILE_M,
    ProductTiles,
    b_map,
    compile_product,
    product_call,
    tile_depth,
)
from gpuprof.reference_kernels.hopper.program import require_hopper
from gpuprof.reference_kernels.hopper.tensor_maps import window_map
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops

_NAME = "implicit-tma"
# Of 16-bit numbers: what TMA brings of a pixel.
_CHANNELS = 64
TILES = (
    ProductTiles(64, cluster=1, stages=8),
    ProductTiles(128, cluster=1, stages=6),
    ProductTiles(256, cluster=1, stages=4),
)


def prepare(problem: ConvolutionProblem) -> Prepared:
    """One group of channels in 64s, filters in 8s; no epilogue."""
    if problem.batch_norm is not None or problem.groups > 1:
        raise UnsupportedError(f"{_NAME} has no groups and no +bn-relu")
    if problem.c % _CHANNELS or problem.k % 8:
        raise UnsupportedError(
            f"{_NAME} needs channels in {_CHANNELS}s and filters in 8s, "
            f"not {problem.c} and {problem.k}"
        )
    require_hopper(_NAME, problem.device)
    x = problem.x.contiguous(memory_format=torch.channels_last)
    # [K, R S C]: tap by tap the channels.
    filters = problem.weight.permute(0, 2, 3, 1).reshape(problem.k, -1).contiguous()
    out = problem.new_output(torch.channels_last)
    rows = out.permute(0, 2, 3, 1).view(-1, problem.k)
    windows = window_map(
        x,
        taps=(problem.r, problem.s),
        padding=problem.padding,
        stride=problem.stride,
        dilation=problem.dilation,
        pixels=TILE_M,
    )
    sizes = (rows.shape[0], problem.k, filters.shape[1])
    image = (problem.c, problem.p, problem.q, problem.s)
    placing = (problem.stride, problem.padding, problem.dilation)
    calls = {
        tiles: product_call(
            compile_product(tiles, dtype=problem.dtype, b_along_k=True, windows=True),
            tiles,
            (windows, b_map(filters.t(), tiles)),
            rows,
            sizes,
            (*image, *placing),
        )
        for tiles in TILES
    }
    tiles = fastest(TILES, lambda chosen: calls[chosen]())
    launch = calls[tiles]

    def call(_alive: tuple[torch.Tensor, ...] = (x, filters)) -> None:
        launch()

    flops = tiles.padded_flops(*sizes, tile_depth(x.element_size()))
    executed = Flops("matmul", problem.dtype, flops)
    return Prepared(call, (out,), executed_flops=(executed,), note=str(tiles))
