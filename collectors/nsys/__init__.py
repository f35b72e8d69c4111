"""Nsight Systems: an SQLite export, or a report where `nsys` can export it, becomes a Capture."""

from gpuprof.collectors.nsys.reader import read, recognises

__all__ = ["read", "recognises"]
