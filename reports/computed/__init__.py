"""How figures of a report are computed: formula, the inputs of this capture, and source."""
