"""Hooks on every module of a process, whichever kinds the installed torch has."""

import torch


def has_global_hooks() -> bool:
    """Whether any is registered."""
    found = vars(torch.nn.modules.module)
    kinds = [name for name in found if name.startswith("_global_") and name.endswith("_hooks")]
    assert len(kinds) >= 4, kinds
    return any(found[name] for name in kinds)
