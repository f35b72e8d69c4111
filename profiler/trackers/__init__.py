"""Sends what a capture says to trackers of experiments, each through its own package."""
