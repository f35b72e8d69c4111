"""The bytes of files that may be compressed."""
