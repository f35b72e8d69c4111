"""Running the gate: pairs of fresh processes of two programs, until the rule has decided."""
