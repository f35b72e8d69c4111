"""What changed between two analyses, kernel by kernel."""
