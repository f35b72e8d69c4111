"""Known work: kernels whose FLOPs and bytes are known exactly."""
