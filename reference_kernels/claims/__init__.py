"""Claimed times and rates, held against what the GPU they name can do at most."""
