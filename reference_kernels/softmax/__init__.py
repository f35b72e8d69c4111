"""Softmax over the rows of a matrix."""

from gpuprof.reference_kernels.suite import Version

_DTYPES = ("bf16", "fp16", "fp32")

VERSIONS = (
    Version(
        "softmax",
        "eager",
        "operator by operator, each a pass through memory",
        _DTYPES,
        ("cuda", "cpu"),
    ),
    Version("softmax", "torch", "torch.softmax", _DTYPES, ("cuda", "cpu")),
    Version("softmax", "torch-compile", "torch.compile of the eager version", _DTYPES),
    Version(
        "softmax",
        "cuda",
        "CUDA C++, a row in a block's registers",
        _DTYPES,
        requires=("cuda-core", "triton"),
    ),
    Version(
        "softmax", "triton", "Triton, a row in a program's registers", _DTYPES, requires=("triton",)
    ),
)
