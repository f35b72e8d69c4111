"""Meaning: a Capture becomes an Analysis. Pure: no torch, no CUDA, no printing."""
