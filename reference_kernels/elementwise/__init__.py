"""Elementwise operations that models are made of: GELU, SwiGLU and the rotary embedding."""

from gpuprof.reference_kernels.suite import Version

_DTYPES = ("bf16", "fp16", "fp32")

VERSIONS = (
    Version(
        "elementwise",
        "eager",
        "operator by operator, each a pass through memory",
        _DTYPES,
        ("cuda", "cpu"),
    ),
    Version(
        "elementwise",
        "torch",
        "torch's own fused operator, where it has one",
        _DTYPES,
        ("cuda", "cpu"),
    ),
    Version("elementwise", "torch-compile", "torch.compile of the eager version", _DTYPES),
    Version(
        "elementwise",
        "cuda",
        "CUDA C++, 16 bytes a thread and load",
        _DTYPES,
        requires=("cuda-core",),
    ),
    Version("elementwise", "triton", "Triton, one pass", _DTYPES, requires=("triton",)),
)
