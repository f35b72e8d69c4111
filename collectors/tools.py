"""NVIDIA's command-line profilers: where each is found on this machine."""

import logging
import os
import shutil
from collections.abc import Mapping
from glob import glob
from typing import Final

# Where they are installed without being on PATH.
TOOL_PLACES: Final = {
    "nsys": (
        # Nsight Compute brings a copy of it.
        "/usr/local/cuda*/nsight-compute*/host/target-linux-x64/nsys",
        "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
        "/usr/local/cuda*/nsight-systems*/bin/nsys",
        "/usr/local/cuda*/bin/nsys",
        "/opt/nvidia/nsight-systems/*/bin/nsys",
    ),
    "ncu": (
        "/opt/nvidia/nsight-compute/*/ncu",
        "/usr/local/cuda*/bin/ncu",
        "/usr/local/cuda*/nsight-compute*/ncu",
    ),
}
_log = logging.getLogger(__name__)
_configured: dict[str, str] = {}


def configure_tools(paths: Mapping[str, str]) -> None:
    """Take these paths for the tools of these names, before any other place."""
    _configured.update(paths)


def find_tool(name: str) -> str | None:
    """The path of a tool: the configured one, that on PATH, else one that is installed.

    Of several places the last of `TOOL_PLACES` counts, and in it the last by name, which is the
    newest version.
    """
    path = configured_tool(name) or shutil.which(name) or _installed_path(name)
    _log.info("%s: %s", name, path)
    return path


def configured_tool(name: str) -> str | None:
    """The path that gpuprof.toml names; None where it names none."""
    return os.path.expanduser(_configured[name]) if name in _configured else None


def _installed_path(name: str) -> str | None:
    installed = [path for place in TOOL_PLACES[name] for path in sorted(glob(place))]
    return installed[-1] if installed else None
