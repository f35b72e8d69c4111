"""Layer and RMS normalisation over the rows of a matrix."""

from gpuprof.reference_kernels.suite import Version

_DTYPES = ("bf16", "fp16", "fp32")

VERSIONS = (
    Version(
        "norm",
        "eager",
        "operator by operator, each a pass through memory",
        _DTYPES,
        ("cuda", "cpu"),
    ),
    Version("norm", "torch", "torch's layer_norm and rms_norm", _DTYPES, ("cuda", "cpu")),
    Version("norm", "torch-compile", "torch.compile of the eager version", _DTYPES),
    Version(
        "norm",
        "cuda",
        "CUDA C++, a row in a block's registers",
        _DTYPES,
        requires=("cuda-core", "triton"),
    ),
    Version(
        "norm", "triton", "Triton, a row in a program's registers", _DTYPES, requires=("triton",)
    ),
)
