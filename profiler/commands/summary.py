"""`gpuprof summary`."""
