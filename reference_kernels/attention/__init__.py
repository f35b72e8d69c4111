"""Attention: softmax(Q K^T / sqrt(D)) V, forward, backward and decoding from a paged cache."""

from gpuprof.reference_kernels.suite import Version

_HALF = ("bf16", "fp16")
_ALL = ("bf16", "fp16", "fp32")

VERSIONS = (
    Version(
        "attention",
        "naive",
        "three kernels: scores, softmax and product each through memory",
        _ALL,
        ("cuda", "cpu"),
    ),
    Version(
        "attention",
        "sdpa-math",
        "torch's scaled_dot_product_attention by plain operators",
        _ALL,
        ("cuda", "cpu"),
    ),
    Version(
        "attention",
        "sdpa-efficient",
        "torch's memory-efficient kernel, scores stay on the chip",
        _ALL,
        capability=(5, 0),
    ),
    Version(
        "attention",
        "sdpa-flash",
        "torch's FlashAttention-2",
        _HALF,
        ("cuda", "cpu"),
        capability=(8, 0),
    ),
    Version(
        "attention",
        "sdpa-cudnn",
        "cuDNN's fused attention",
        _HALF,
        capability=(8, 0),
    ),
    Version(
        "attention",
        "triton-flash",
        "FlashAttention-2 forward in Triton, tiles by TMA where the GPU has it",
        _HALF,
        requires=("triton>=3.4",),
        capability=(8, 0),
    ),
    Version(
        "attention",
        "triton-flash-backward",
        "FlashAttention-2 backward in Triton",
        _HALF,
        requires=("triton>=3.4",),
        capability=(8, 0),
    ),
    Version(
        "attention",
        "cuda-flash",
        "FlashAttention-3 forward in CUDA C++, exponentials beside products",
        _HALF,
        requires=("cuda-core",),
        capability=(9, 0),
    ),
    Version(
        "attention",
        "cuda-flash-backward",
        "the backward in CUDA C++, scores once, dQ added up by the copy engine",
        _HALF,
        requires=("cuda-core",),
        capability=(9, 0),
    ),
    Version(
        "attention",
        "gathered-decode",
        "pages copied together, then torch's attention on them",
        _ALL,
        ("cuda", "cpu"),
    ),
    Version(
        "attention",
        "triton-paged-decode",
        "pages read in place through the block table, the sequence split over programs",
        _HALF,
        requires=("triton>=3.4",),
        capability=(8, 0),
    ),
    Version(
        "attention",
        "cuda-paged-decode",
        "pages of eight heads brought whole by the copy engine, the sequence split over a cluster",
        _HALF,
        requires=("cuda-core",),
        capability=(9, 0),
    ),
)
