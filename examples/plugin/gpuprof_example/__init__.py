"""One plug-in of gpuprof of each kind."""
