"""A kernel's checklist: what keeps it from its roof, with evidence and the most it could gain."""
