"""Dumps of torch's flight recorder: which collectives each rank entered, and which it left."""

from gpuprof.collectors.flight_recorder.reader import SOURCE, read, recognises

__all__ = ["SOURCE", "read", "recognises"]
