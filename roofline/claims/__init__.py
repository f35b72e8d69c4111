"""Claimed times and rates, against what the GPU they name can do at most."""
