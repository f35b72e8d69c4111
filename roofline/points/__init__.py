"""Points of the roofline, from single kernels to a whole step, and their classes."""
