"""Claimed times and rates, compared with what the GPU they name can do at most."""
