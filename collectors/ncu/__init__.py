"""Nsight Compute: a CSV page or a report becomes a Capture with counters."""

from gpuprof.collectors.ncu.reader import read, recognises

__all__ = ["read", "recognises"]
