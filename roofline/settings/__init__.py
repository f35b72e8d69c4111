"""Which settings cost in this capture, and what speaks for it."""
