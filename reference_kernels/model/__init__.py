"""A Llama-style decoder: one block or a stack, prefill, decode and training."""

from gpuprof.reference_kernels.suite import Version

_DTYPES = ("bf16", "fp16", "fp32")

VERSIONS = (
    Version(
        "model",
        "eager",
        "operators one after the other, launched by Python",
        _DTYPES,
        ("cuda", "cpu"),
    ),
    Version("model", "torch-compile", "torch.compile fuses what lies between products", _DTYPES),
    Version("model", "cuda-graph", "the eager version's kernels, launched at once", _DTYPES),
)
