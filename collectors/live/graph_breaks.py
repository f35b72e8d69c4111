"""How often torch.compile had to leave a graph in this process."""

import sys


def graph_breaks() -> int | None:
    """Graph breaks that dynamo has counted so far; None where the program compiled nothing."""
    utilities = sys.modules.get("torch._dynamo.utils")
    if utilities is None:
        return None
    counters = utilities.counters
    # frames: what dynamo looked at. Importing it, as optimizers do, compiles nothing.
    if not counters.get("frames"):
        return None
    return int(sum(counters["graph_break"].values()))
