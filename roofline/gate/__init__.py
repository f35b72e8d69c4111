"""How the gate decides: from the samples of fresh processes to verdicts. Pure; runs nothing."""
