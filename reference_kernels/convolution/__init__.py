"""Convolution: direct, as a GEMM (explicit and implicit), by Winograd, by FFT and by cuDNN.

"Measured" in a version's docstring is one call under Nsight Compute on an H100 (SXM), with cold
caches, at 32x256x28x28-256x3x3-p1 unless said: FLOPs against those of its whole tiles, DRAM traffic
against what it expects; reasons are inferred. Counted writes fall short where outputs fit the L2:
what is still there when a kernel ends is written later, and counts to none.
"""

from gpuprof.reference_kernels.suite import DeviceType, Requirement, Version

_EVERYWHERE: tuple[DeviceType, ...] = ("cuda", "cpu")
_ALL = ("fp16", "bf16", "tf32", "fp32")


def _version(
    name: str,
    summary: str,
    dtypes: tuple[str, ...],
    *,
    devices: tuple[DeviceType, ...] = ("cuda",),
    requires: tuple[Requirement, ...] = (),
    capability: tuple[int, int] = (0, 0),
) -> Version:
    return Version("convolution", name, summary, dtypes, devices, requires, capability)


VERSIONS: tuple[Version, ...] = (
    _version("cudnn", "cuDNN, NHWC, the fastest of its algorithms by trial", _ALL),
    _version("cudnn-heuristic", "cuDNN, NHWC, the algorithm that its heuristic picks", _ALL),
    _version("cudnn-deterministic", "cuDNN, NHWC, deterministic algorithms only", _ALL),
    _version("cudnn-nchw", "cuDNN, NCHW, the fastest of its algorithms by trial", _ALL),
    _version(
        "cudnn-fused",
        "convolution, folded batch norm and ReLU in one cuDNN kernel",
        ("fp16", "tf32", "fp32"),
    ),
    _version(
        "torch-unfused",
        "torch's operators one by one: convolution, batch norm, ReLU",
        _ALL,
        devices=_EVERYWHERE,
    ),
    _version(
        "direct",
        "CUDA C++, straight from the definition",
        ("fp32",),
        requires=("cuda-core",),
    ),
    _version(
        "im2col",
        "the input's windows written out as a matrix, then a GEMM",
        _ALL,
        devices=_EVERYWHERE,
    ),
    _version(
        "implicit-gemm",
        "Triton, NHWC: a GEMM that finds the windows while it loads",
        ("fp16", "bf16", "tf32"),
        requires=("triton",),
        capability=(8, 0),
    ),
    _version(
        "implicit-precomputed",
        "Triton, NHWC: the implicit GEMM with a table of offsets",
        ("fp16", "bf16", "tf32"),
        requires=("triton",),
        capability=(8, 0),
    ),
    _version(
        "implicit-tma",
        "CUDA C++, NHWC: an implicit GEMM whose windows TMA finds",
        ("fp16", "bf16"),
        requires=("cuda-core", "triton"),
        capability=(9, 0),
    ),
    _version(
        "winograd-2x2",
        "Winograd F(2x2, 3x3): 2.25 times fewer products",
        ("fp16", "tf32", "fp32"),
        devices=_EVERYWHERE,
    ),
    _version(
        "winograd-4x4",
        "Winograd F(4x4, 3x3): 4 times fewer products, less exact",
        ("fp16", "tf32", "fp32"),
        devices=_EVERYWHERE,
    ),
    _version(
        "fft",
        "products of spectra: cost independent of the filter's size",
        ("fp32",),
        devices=_EVERYWHERE,
    ),
)
