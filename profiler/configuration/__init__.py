"""gpuprof.toml: what a project says about its devices, its targets and its gate."""
