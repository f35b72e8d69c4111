"""Profiles steps of a program that gpuprof did not start: Python 3.14's remote execution."""
