"""Facts: watch a live process, or read another tool's file, into a Capture."""
