"""NVIDIA's management library: what GPUs do while a program runs, and who else uses them."""
