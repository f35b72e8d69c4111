"""Writing to terminals: the one way to stdout and stderr, for every command."""
