"""gpuprof in a notebook: the cell magic, and how captures show themselves there."""
