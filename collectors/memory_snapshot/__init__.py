"""Snapshots of torch's CUDA allocator: of this process, and in files."""
