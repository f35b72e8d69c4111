"""Captures on demand: a program runs untouched until somebody, or a step, asks for one."""
