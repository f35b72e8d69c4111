"""What a device can do at most, and which settings decide it."""
