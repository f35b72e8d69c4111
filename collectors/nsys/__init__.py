"""Nsight Systems: an export, or a report where `nsys` can export it, becomes a Capture."""

from gpuprof.collectors.nsys.parquet_folder import is_parquet_folder
from gpuprof.collectors.nsys.reader import read, recognises

__all__ = ["is_parquet_folder", "read", "recognises"]
