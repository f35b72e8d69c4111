"""`gpuprof report`."""
