"""What the host did in the profiled steps, beside what it started on a device."""
