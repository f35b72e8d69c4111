"""One operator or kernel through all layers, from its line to its counters."""
