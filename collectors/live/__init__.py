"""What a live process tells: torch's profiler, NVML, ranges, models, settings."""
