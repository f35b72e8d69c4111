"""Which launches of a program are worth counting in a second run."""
