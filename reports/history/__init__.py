"""The history of benchmarks as a page."""
