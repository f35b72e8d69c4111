"""This machine: what it offers to a profiler, and what it reached."""
