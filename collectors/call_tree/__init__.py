"""Calls on a thread as a tree: which one holds which, and which of them do the work."""
