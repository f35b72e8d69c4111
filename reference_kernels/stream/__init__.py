"""Streaming kernels: copy and triad, bound by DRAM."""

from gpuprof.reference_kernels.suite import Version

VERSIONS = (
    Version(
        "stream",
        "torch",
        "one streaming kernel of torch, what DRAM sustains",
        dtypes=("fp32", "fp16", "bf16"),
        devices=("cuda", "cpu"),
    ),
    Version(
        "stream",
        "cuda",
        "CUDA C++, 16 bytes a thread and array",
        dtypes=("fp32", "fp16", "bf16"),
        requires=("cuda-core",),
    ),
    Version(
        "stream",
        "triton",
        "Triton, one block a program",
        dtypes=("fp32", "fp16", "bf16"),
        requires=("triton",),
    ),
)
