"""A comparison of two captures as people read it."""
