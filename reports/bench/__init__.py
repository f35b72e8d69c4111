"""What a bench found, and what claims amount to, on the terminal."""
