"""Calibration: what a device reaches on known kernels."""
