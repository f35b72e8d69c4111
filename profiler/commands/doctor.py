"""`gpuprof doctor`."""
