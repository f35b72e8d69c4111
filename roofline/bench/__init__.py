"""What a bench found, and what its times amount to."""
