"""The convolution family's problem: 2-D, with stride, padding, dilation, groups, batch norm."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from gpuprof.reference_kernels.suite import TORCH_DTYPES, DeviceType, KnownWork, Problem
from gpuprof.roofline.claims.convolution_shape import SIZE_FORM, parse_convolution
from gpuprof.roofline.cost_models.cost import Flops

_BATCH_NORM = "+bn-relu"
# Winograd's transforms add and subtract before and after the products, which costs digits
# (Lavin and Gray, 2016): these leave room for F(4x4).
_TOLERANCES = {"fp32": 1e-5, "tf32": 6e-3, "fp16": 6e-3, "bf16": 1e-2}
_EPSILON = 1e-5
# Of batch norm and ReLU on one element: bias, mean, scale, shift, maximum.
_EPILOGUE_FLOPS = 5


@dataclass(frozen=True)
class BatchNorm:
    """Bias of the convolution, then y = (x - mean) / sqrt(variance + epsilon) * gamma + beta."""

    bias: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor
    gamma: torch.Tensor
    beta: torch.Tensor
    epsilon: float = _EPSILON

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Its five vectors of K elements."""
        return self.bias, self.mean, self.variance, self.gamma, self.beta


class ConvolutionProblem(Problem):
    """y[N, K, P, Q] = x[N, C, H, W] * w[K, C / groups, R, S], without bias.

    Tensors are drawn in NCHW; a version that wants NHWC lays them out so while it is prepared.
    P = floor((H + 2 padding - dilation (R - 1) - 1) / stride) + 1, Q likewise.

    "+bn-relu" is a layer at inference: a bias, batch norm with running statistics, ReLU.
    """

    family = "convolution"
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": (
            "32x64x56x56-64x3x3-p1",
            "32x128x56x56-128x3x3-p1",
            "32x256x28x28-256x3x3-p1",
            "32x512x28x28-512x3x3-p1",
            "32x256x56x56-512x1x1-s2",
            "32x256x28x28-256x3x3-p1+bn-relu",
        ),
        "cpu": ("2x32x28x28-32x3x3-p1", "2x32x28x28-64x3x3-s2-p1+bn-relu"),
    }
    default_dtypes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("fp16", "fp32"),
        "cpu": ("fp32",),
    }
    size_form = f"{SIZE_FORM}[{_BATCH_NORM}]"

    def __init__(self, size: str, dtype: str, device: torch.device, *, seed: int = 0) -> None:
        super().__init__(size, dtype, device, seed=seed)
        if dtype not in _TOLERANCES:
            raise ValueError(f"convolution has no {dtype}: {', '.join(_TOLERANCES)}")
        self.shape = shape = parse_convolution(size.removesuffix(_BATCH_NORM))
        self.n, self.c, self.h, self.w = shape.n, shape.c, shape.h, shape.w
        self.k, self.r, self.s = shape.k, shape.r, shape.s
        self.p, self.q = shape.p, shape.q
        self.stride, self.padding = shape.stride, shape.padding
        self.dilation, self.groups = shape.dilation, shape.groups

        element = TORCH_DTYPES[dtype]
        taps = self.c // self.groups * self.r * self.s
        self.x = self.random(self.n, self.c, self.h, self.w, dtype=element)
        weight = self.random(self.k, self.c // self.groups, self.r, self.s, dtype=torch.float32)
        # Scaled so that the outputs, too, are near 1.
        self.weight = (weight / math.sqrt(taps)).to(element)
        self.batch_norm = self._draw_batch_norm(element) if size.endswith(_BATCH_NORM) else None

    def new_output(self, memory_format: torch.memory_format) -> torch.Tensor:
        """Room for y, laid out as NCHW (contiguous_format) or NHWC (channels_last)."""
        return torch.empty(
            (self.n, self.k, self.p, self.q),
            device=self.device,
            dtype=self.x.dtype,
            memory_format=memory_format,
        )

    def work(self) -> KnownWork:
        """2 N K P Q (C / groups) R S FLOPs, products with padding's zeros among them.

        Compulsory bytes: what of x any window covers, the weights and vectors; y.
        """
        outputs = self.shape.output_elements
        flops = [Flops("matmul", self.dtype, self.shape.flops)]
        vectors: tuple[torch.Tensor, ...] = ()
        if self.batch_norm is not None:
            flops.append(Flops("vector", "fp32", _EPILOGUE_FLOPS * outputs))
            vectors = self.batch_norm.tensors
        element_bytes = self.x.element_size()
        inputs = self.shape.touched_elements + self.shape.weight_elements
        return KnownWork(
            flops=tuple(flops),
            bytes_read=inputs * element_bytes + sum(v.numel() * v.element_size() for v in vectors),
            bytes_written=outputs * element_bytes,
        )

    def reference(self) -> tuple[torch.Tensor, ...]:
        """y in float64."""
        y = torch.nn.functional.conv2d(
            self.x.double(),
            self.weight.double(),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )
        if self.batch_norm is not None:
            scale, shift = self._scale_and_shift(self.batch_norm)
            y = (y * scale[:, None, None] + shift[:, None, None]).relu_()
        return (y,)

    @property
    def tolerance(self) -> float:
        """By dtype: rounding of the operands and of the output."""
        return _TOLERANCES[self.dtype]

    def folded(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weights and bias with the batch norm in them, as any network is deployed.

        Without batch norm: the weights as they are, no bias.
        """
        if self.batch_norm is None:
            return self.weight, None
        scale, shift = self._scale_and_shift(self.batch_norm)
        weight = self.weight.double() * scale[:, None, None, None]
        return weight.to(self.weight.dtype), shift.to(self.weight.dtype)

    def _draw_batch_norm(self, element: torch.dtype) -> BatchNorm:
        bias, mean, gamma, beta = (self.random(self.k, dtype=element) for _ in range(4))
        variance = self.random(self.k, dtype=torch.float32).square().add(0.5).to(element)
        return BatchNorm(bias, mean, variance, gamma, beta)

    @staticmethod
    def _scale_and_shift(norm: BatchNorm) -> tuple[torch.Tensor, torch.Tensor]:
        scale = norm.gamma.double() / (norm.variance.double() + norm.epsilon).sqrt()
        return scale, (norm.bias.double() - norm.mean.double()) * scale + norm.beta.double()
