"""Which versions of a benchmark call a library's own kernel: the ones others are compared with."""

# What a family's other versions are compared with: versions named after these call a library's own
# kernel. The fastest of them in the same run counts.
_LIBRARIES = frozenset({"cublas", "cublaslt", "cudnn", "nccl", "gloo", "sdpa", "torch"})
# torch.compile's kernels are generated.
_GENERATED = "compile"


def is_library(version: str) -> bool:
    """Whether a version of this name calls a library's own kernel."""
    words = version.split("-")
    return _GENERATED not in words and not _LIBRARIES.isdisjoint(words)
