"""`gpuprof.toml`: what a project says about its devices and its gate.

One file counts: the nearest `gpuprof.toml` from the working directory upwards, no further than the
root of the repository; else `gpuprof/gpuprof.toml` in the user's configuration folder.
"""

import difflib
import logging
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from gpuprof.collectors.errors import CaptureError, CommandError, problem_of
from gpuprof.collectors.files.source import whole_content
from gpuprof.collectors.tools import configure_tools
from gpuprof.profiler.configuration.gate_settings import (
    BudgetSettings,
    GateSettings,
    WaiverSettings,
)
from gpuprof.profiler.configuration.targets import Target
from gpuprof.roofline.machine.devices import DeviceSpec, register_devices
from gpuprof.roofline.prices import Prices, set_prices

_log = logging.getLogger(__name__)
CONFIGURATION_FILE = "gpuprof.toml"

# Reading TOML takes tens of times as much, and a path may lead to what never ends.
_LARGEST_BYTES = 1 << 20
_UNKNOWN_KEY = re.compile(
    r"Object contains unknown field `(?P<key>[^`]*)`(?: - at `(?P<place>.*)`)?"
)


class ToolPaths(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where NVIDIA's command-line profilers are, instead of those on PATH."""

    nsys: str | None = None
    ncu: str | None = None
    # A python that has cupti-python, for --pm-sampling.
    pm_sampling_python: str | None = None


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a `gpuprof.toml` may hold. Without a file everything has its default."""

    # Rows of the device table; they win over the built-in ones.
    device: tuple[DeviceSpec, ...] = ()
    tools: ToolPaths = ToolPaths()
    prices: Prices = Prices()
    gate: GateSettings = GateSettings()
    target: tuple[Target, ...] = ()
    budget: tuple[BudgetSettings, ...] = ()
    waiver: tuple[WaiverSettings, ...] = ()


def find_configuration(start: Path | None = None) -> Path | None:
    """The file that counts for work in `start` (default: the working directory), or None."""
    try:
        start = (start or Path.cwd()).absolute()
    except FileNotFoundError:  # the working directory has been removed
        return None
    for folder in (start, *start.parents):
        file = folder / CONFIGURATION_FILE
        if os.path.isfile(file):
            return file
        # A file (worktrees, submodules) or a folder.
        if os.path.exists(folder / ".git"):
            break
    try:
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    except RuntimeError:  # there is no home folder
        return None
    file = Path(home) / "gpuprof" / CONFIGURATION_FILE
    # Unlike the path's own methods these take a home that may not be looked into for an empty one,
    # as of a container that runs as another user.
    return file if os.path.isfile(file) else None


def read_configuration(file: Path) -> Configuration:
    """The content of `file`. Raises `CommandError` (exit 2) with the place of what is wrong."""
    try:
        content = whole_content(file, _LARGEST_BYTES, what="settings", remedy="write less")
        return msgspec.toml.decode(content, type=Configuration)
    except CaptureError as error:
        raise CommandError(str(error), exit_code=2) from error
    # UnicodeDecodeError is a ValueError, as are msgspec's. RecursionError: arrays without end.
    except (ValueError, RecursionError) as error:
        problem = _explained(problem_of(error))
        raise CommandError(f"{file}: {problem}", exit_code=2) from error


def apply_configuration(start: Path | None = None) -> None:
    """Make what `gpuprof.toml` says hold in this process, where there is one."""
    file = find_configuration(start)
    _log.info("settings: %s", file or f"no {CONFIGURATION_FILE}")
    if file is None:
        return
    configuration = read_configuration(file)
    register_devices(configuration.device, origin=str(file))
    set_prices(configuration.prices)
    paths = msgspec.structs.asdict(configuration.tools)
    configure_tools({name: path for name, path in paths.items() if path is not None})


def _explained(problem: str) -> str:
    """msgspec's message with its place in words, and with the known key nearest to an unknown."""
    unknown = _UNKNOWN_KEY.fullmatch(problem)
    if unknown is None:
        message, _, place = problem.partition(" - at ")
        where = _place(place.strip("`"))
        if message == "Expected `array`, got `object`":
            return f"{where}: expected a list of tables; write [[{where}]] with a name in it"
        return f"{where}: {message}" if where else message
    key, place = unknown["key"], unknown["place"] or "$"
    known = _known_keys(place)
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    where = _place(place)
    return f"{where}: unknown key {key!r}; {hint}" if where else f"unknown key {key!r}; {hint}"


def _place(path: str) -> str:
    """ "$.device[0].peaks[1]" as "device 1, peaks 2"."""
    parts = path.removeprefix("$").strip(".").replace("[...]", "").split(".")
    return ", ".join(
        re.sub(r"\[(\d+)\]", lambda found: f" {int(found[1]) + 1}", part) for part in parts if part
    )


def _known_keys(path: str) -> list[str]:
    """The keys of the table at msgspec's `path`."""
    info: Any = msgspec.inspect.type_info(Configuration)
    for name in re.findall(r"\.(\w+)", path):
        info = next(field.type for field in info.fields if field.encode_name == name)
        # A list of tables, or one that may be absent.
        while not isinstance(info, msgspec.inspect.StructType):
            inner = getattr(info, "item_type", None)
            info = inner or next(t for t in info.types if hasattr(t, "fields"))
    return [field.encode_name for field in info.fields]
