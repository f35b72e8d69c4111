"""Who else holds CUPTI in this process: only one may, and torch.profiler needs it for device work.

Told without asking CUPTI, since the first question would itself hold it.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

# What a tool that injects a library into each program with CUDA sets.
_INJECTED: Final = "CUDA_INJECTION64_PATH"
# Of Nsight Systems in any program, of Nsight Compute in those that it may count. The first also
# needs the injected library: without `--trace=cuda` it leaves CUPTI alone.
_NSYS: Final = "NSYS_PROFILING_SESSION_ID"
_NCU: Final = "NV_NSIGHT_INJECTION_TRANSPORT_TYPE"
_CUSPY: Final = "torch.profiler._cuspy.core"


def cupti_holder() -> str | None:
    """The name of the tool that is known to hold CUPTI here, None where none is known to."""
    if os.environ.get(_NSYS) and os.environ.get(_INJECTED):
        return "Nsight Systems"
    if os.environ.get(_NCU):
        return "Nsight Compute"
    return "torch's Cuspy" if _cuspy_subscribes() else None


def suspected_holder() -> str | None:
    """What may hold CUPTI, named where torch.profiler saw no device work and nothing is known."""
    injected = os.environ.get(_INJECTED)
    return f"{Path(injected).name} ({_INJECTED})" if injected else None


def _cuspy_subscribes() -> bool:
    """Whether torch's collector of CUPTI records runs (torch/profiler/_cuspy/core.py)."""
    core: Any = sys.modules.get(_CUSPY)
    ask = getattr(core, "has_live_subscription", None)
    if ask is None:
        return False
    try:
        return bool(ask())
    # A private function of torch, which may be another in its next release.
    except Exception:
        return False
