"""`gpuprof run`."""
