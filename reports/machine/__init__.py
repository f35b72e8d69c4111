"""This machine in a terminal: what it offers to a profiler, and what it reached."""
