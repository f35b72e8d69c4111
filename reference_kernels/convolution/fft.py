"""Convolution by FFT: spectra of images and filters, multiplied and summed over channels.

A convolution is an element-wise product of spectra, so the cost does not depend on the filter's
size; the sum over channels makes it one complex GEMM for each frequency. The filters' spectra are
computed beforehand. Transforms are circular: they are as large as the padded input, and the outputs
that wrapped around are not looked at. A stride only drops outputs.

FLOPs by definition: 2 N K P Q (C / groups) R S. Executed: 8 N K (C / groups) for each of
F_h (F_w / 2 + 1) frequencies, as real input has a symmetric spectrum, and 2.5 F log2 F for each
real transform of F = F_h F_w points (N C forward, N K back; the usual count for Cooley-Tukey).
Bytes: compulsory. Expected: every step's operands and results: padded input, spectra (8 bytes a
frequency) before and after they are laid out for the GEMMs, outputs. cuFFT may take two passes over
a transform.
Measured: FLOPs 1.06 times, as the usual count of a transform is a little low for 30 points; read
1.22 times what is expected, as each transform takes two passes, over rows and over columns.

Source: Mathieu, Henaff and LeCun, "Fast training of convolutional networks through FFTs", 2013.
"""

import math

import torch
import torch.nn.functional as F

from gpuprof.reference_kernels.calibration.gemm import float32_products
from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops


def prepare(problem: ConvolutionProblem) -> Prepared:
    """Any size without +bn-relu."""
    if problem.batch_norm is not None:
        raise UnsupportedError("fft has no +bn-relu")
    n, groups, stride, padding = problem.n, problem.groups, problem.stride, problem.padding
    c, k = problem.c // groups, problem.k // groups
    points = (_good_size(problem.h + 2 * padding), _good_size(problem.w + 2 * padding))
    frequencies = points[0] * (points[1] // 2 + 1)
    margins = (
        *(padding, points[1] - problem.w - padding),
        *(padding, points[0] - problem.h - padding),
    )
    # Conjugated, as a convolution of neural networks is a correlation. [f, groups, c, k]
    filters = torch.fft.rfft2(_dilated(problem), s=points).conj()
    by_frequency = filters.reshape(groups, k, c, frequencies).permute(3, 0, 2, 1)
    filters = by_frequency.resolve_conj().reshape(frequencies * groups, c, k).contiguous()
    out = problem.new_output(torch.contiguous_format)

    def call() -> None:
        spectra = torch.fft.rfft2(F.pad(problem.x, margins))
        images = spectra.view(n, groups, c, frequencies).permute(3, 1, 0, 2)
        with float32_products(tf32=False):
            products = torch.bmm(images.reshape(frequencies * groups, n, c), filters)
        by_image = products.view(frequencies, groups, n, k).permute(2, 1, 3, 0).contiguous()
        spectrum = by_image.view(n, groups * k, points[0], points[1] // 2 + 1)
        filtered = torch.fft.irfft2(spectrum, s=points)
        rows, columns = problem.p * stride, problem.q * stride
        out.copy_(filtered[:, :, :rows:stride, :columns:stride])

    input_bytes, work = problem.x.numel() * 4, problem.work()
    padded_bytes = n * problem.c * math.prod(points) * 4
    input_spectra, output_spectra = (n * f * frequencies * 8 for f in (problem.c, problem.k))
    filtered_bytes = n * problem.k * math.prod(points) * 4
    transform_flops = round(2.5 * math.prod(points) * math.log2(math.prod(points)))
    return Prepared(
        call,
        (out,),
        executed_flops=(
            Flops("matmul", "fp32", 8 * n * problem.k * c * frequencies),
            Flops("vector", "fp32", n * (problem.c + problem.k) * transform_flops),
        ),
        # Padding, transforming, laying out, products, laying out, transforming back, cropping.
        expected_bytes_read=input_bytes
        + padded_bytes
        + 2 * input_spectra
        + filters.numel() * 8
        + 2 * output_spectra
        + work.bytes_written,
        expected_bytes_written=padded_bytes
        + 2 * input_spectra
        + 2 * output_spectra
        + filtered_bytes
        + work.bytes_written,
        note=f"transforms of {points[0]} x {points[1]} points",
    )


def _dilated(problem: ConvolutionProblem) -> torch.Tensor:
    """The filters with zeros between their taps, [K, C / groups, rows, columns]."""
    d, weight = problem.dilation, problem.weight
    spread = weight.new_zeros(*weight.shape[:2], (problem.r - 1) * d + 1, (problem.s - 1) * d + 1)
    spread[:, :, ::d, ::d] = weight
    return spread


def _good_size(least: int) -> int:
    """The least even size from `least` on with no prime factor above 7: cuFFT's fast ones."""
    size = least + least % 2
    while True:
        rest = size
        for factor in (2, 3, 5, 7):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return size
        size += 2
