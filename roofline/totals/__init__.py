"""Totals by kind of work, by phase and by precision."""
