"""What of torch and Python is set in a way that can cost: only what is not at its default."""

import sys
from collections.abc import Callable
from typing import Any


def torch_settings() -> dict[str, str]:
    """Value by the name of the setting in `collectors/settings.toml`.

    Each is asked for on its own: a torch that lacks one has the others.
    """
    found = {name: _answer(read) for name, read in _SETTINGS.items()}
    return {name: value for name, value in found.items() if value}


def _answer(read: Callable[[Any], str]) -> str:
    """ "" for what is at its default, or is not there."""
    torch = sys.modules.get("torch")
    try:
        return "" if torch is None else read(torch)
    # Of any age, in any state.
    except Exception:
        return ""


def _deterministic(torch: Any) -> str:
    if not torch.are_deterministic_algorithms_enabled():
        return ""
    return "warn only" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"


def _function(found: Any) -> str:
    """The module of a function that Python calls: whose it is."""
    if found is None:
        return ""
    return str(getattr(found, "__module__", None) or type(found).__module__)


_SETTINGS: dict[str, Callable[[Any], str]] = {
    "anomaly detection": lambda torch: "on" if torch.is_anomaly_enabled() else "",
    "deterministic algorithms": _deterministic,
    "cudnn.benchmark": lambda torch: "on" if torch.backends.cudnn.benchmark else "",
    "cudnn.deterministic": lambda torch: "on" if torch.backends.cudnn.deterministic else "",
    "cudnn.enabled": lambda torch: "" if torch.backends.cudnn.enabled else "off",
    "tracing function": lambda torch: _function(sys.gettrace()),
    "profiling function": lambda torch: _function(sys.getprofile()),
}
