"""Snapshots of torch's CUDA allocator: of this process, and in files."""

from gpuprof.collectors.memory_snapshot.reader import SOURCE, read, recognises

__all__ = ["SOURCE", "read", "recognises"]
