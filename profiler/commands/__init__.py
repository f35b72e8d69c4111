"""One module a sub-command; `gpuprof.profiler.cli` lists them."""
