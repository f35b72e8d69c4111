"""The face: command line, run sessions and the public Python API."""
