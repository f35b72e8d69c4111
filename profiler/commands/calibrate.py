"""`gpuprof calibrate`."""
