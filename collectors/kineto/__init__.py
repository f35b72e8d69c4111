"""PyTorch profiler (Kineto) JSON traces -> Capture."""

from gpuprof.collectors.kineto.reader import read

__all__ = ["read"]
