"""PyTorch profiler (Kineto) JSON traces -> Capture."""

from gpuprof.collectors.kineto.reader import read, recognises

__all__ = ["read", "recognises"]
