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
)
