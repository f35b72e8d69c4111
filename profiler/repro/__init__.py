"""Writes a recorded operator call as a script that needs nothing but torch."""
