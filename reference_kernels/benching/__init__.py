"""Runs versions of the suite on their problems: checks each against float64, then times it."""
