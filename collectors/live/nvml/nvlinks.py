"""A GPU's NVLinks."""

from functools import partial
from typing import Any, Final

from gpuprof.collectors.live.nvml.library import answer

# More than any device has, where pynvml does not say how many there can be.
_MOST_LINKS: Final = 36


def link_states(library: Any, handle: Any) -> dict[int, bool]:
    """Whether each link is up, by its number; empty where the device has none.

    NVML knows the links of a device without a gap: the first that it does not know ends them.
    """
    found: dict[int, bool] = {}
    for link in range(getattr(library, "NVML_NVLINK_MAX_LINKS", _MOST_LINKS)):
        state = answer(partial(_state, library, handle, link))
        if state not in (0, 1):
            break
        found[link] = bool(state)
    return found


def _state(library: Any, handle: Any, link: int) -> Any:
    return library.nvmlDeviceGetNvLinkState(handle, link)
