"""Logs of NCCL (NCCL_DEBUG=INFO): communicators, transports, algorithms, warnings."""

from gpuprof.collectors.nccl_log.reader import SOURCE, read, recognises

__all__ = ["SOURCE", "read", "recognises"]
