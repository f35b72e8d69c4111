"""One bench: running the suite's versions and storing what they took."""
