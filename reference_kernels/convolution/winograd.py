"""Winograd's minimal filtering F(m x m, 3 x 3) as torch operators: what both versions share.

Overlapping tiles of (m + 2)^2 inputs, m apart, are transformed (V = B^T d B), so are the filters,
beforehand (U = G g G^T); the convolution of a tile is then an element-wise product, summed over
channels: (m + 2)^2 independent GEMMs. A^T M A gives m^2 outputs a tile. Direct filtering takes 9
products an output, this (m + 2)^2 / m^2. The transforms of a tile are linear in its (m + 2)^2
values, so they are GEMMs too, by the Kronecker product of the matrix with itself.
"""

import torch
import torch.nn.functional as F

from gpuprof.reference_kernels.calibration.gemm import float32_products
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

# B^T, G, A^T for m = 2 and 4: Lavin and Gray, "Fast algorithms for convolutional neural networks",
# CVPR 2016, sections 4.1 and 4.2.
_MATRICES: dict[int, tuple[list[list[float]], list[list[float]], list[list[float]]]] = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}


def prepare_winograd(problem: ConvolutionProblem, m: int) -> Prepared:
    """3 x 3 filters, stride and dilation 1, no groups, no +bn-relu; `m` is 2 or 4.

    Raises `UnsupportedError` for other filters: the algorithm has no such form.
    """
    settings = (problem.r, problem.s, problem.stride, problem.dilation, problem.groups)
    if settings != (3, 3, 1, 1, 1) or problem.batch_norm is not None:
        needed = "3 x 3 filters, stride 1, dilation 1, no groups and no +bn-relu"
        raise UnsupportedError(f"winograd needs {needed}")
    n, c, k, p, q = problem.n, problem.c, problem.k, problem.p, problem.q
    dtype, device = problem.x.dtype, problem.device
    data_transform, filter_transform, output_transform = (
        torch.kron(matrix, matrix).to(device)
        for rows in _MATRICES[m]
        for matrix in [torch.tensor(rows, dtype=torch.float64)]
    )
    points = (m + 2) ** 2
    tiles_down, tiles_across = -(-p // m), -(-q // m)
    tiles = n * tiles_down * tiles_across
    filters = problem.weight.double().reshape(k * c, 9).t()
    transformed_filters = (filter_transform @ filters).view(points, k, c).to(dtype)
    data_transform, output_transform = data_transform.to(dtype), output_transform.to(dtype)
    # Zeros around the image, and as many more as whole tiles need.
    right = tiles_across * m + 2 - problem.w - problem.padding
    bottom = tiles_down * m + 2 - problem.h - problem.padding
    margins = (problem.padding, right, problem.padding, bottom)
    out = problem.new_output(torch.contiguous_format)

    def call() -> None:
        padded = F.pad(problem.x, margins)
        windows = padded.unfold(2, m + 2, m).unfold(3, m + 2, m)
        data = windows.permute(4, 5, 1, 0, 2, 3).reshape(points, c * tiles)
        # The transforms always in full float32: their constants amplify rounding.
        with float32_products(tf32=False):
            transformed = (data_transform @ data).view(points, c, tiles)
        with float32_products(tf32=problem.dtype == "tf32"):
            products = torch.bmm(transformed_filters, transformed)
        with float32_products(tf32=False):
            pixels = output_transform @ products.view(points, k * tiles)
        blocks = pixels.view(m, m, k, n, tiles_down, tiles_across).permute(3, 2, 4, 0, 5, 1)
        image = blocks.reshape(n, k, tiles_down * m, tiles_across * m)
        out.copy_(image[:, :, :p, :q])

    element_bytes = problem.x.element_size()
    padded_bytes = n * c * (tiles_down * m + 2) * (tiles_across * m + 2) * element_bytes
    data_bytes = points * c * tiles * element_bytes
    product_bytes = points * k * tiles * element_bytes
    pixel_bytes = m * m * k * tiles * element_bytes
    work = problem.work()
    filter_bytes = transformed_filters.numel() * element_bytes
    input_bytes = problem.x.numel() * element_bytes
    transforms = "fp32" if problem.dtype == "tf32" else problem.dtype
    transform_flops = 2 * points * points * c * tiles + 2 * m * m * points * k * tiles
    return Prepared(
        call,
        (out,),
        executed_flops=(
            Flops("matmul", problem.dtype, 2 * points * c * k * tiles),
            Flops("matmul", transforms, transform_flops),
        ),
        # Padding, gathering, transforming, products, transforming, interleaving, cropping.
        expected_bytes_read=input_bytes
        + padded_bytes
        + 2 * data_bytes
        + filter_bytes
        + product_bytes
        + 2 * pixel_bytes,
        expected_bytes_written=padded_bytes
        + 2 * data_bytes
        + product_bytes
        + 2 * pixel_bytes
        + work.bytes_written,
        note=f"F({m}x{m}, 3x3), {points} GEMMs of {k} x {c} x {tiles}",
    )
