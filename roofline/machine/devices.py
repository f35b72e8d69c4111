"""The device table: what vendors promise for a device, found by its name, size and architecture.

The facts are in `devices.toml`, each row with its source. A device that the table does not know,
or that could be several rows, has no peak: a percentage of another device's peak would be wrong
without anyone noticing. Plug-ins add rows for devices that the table does not have.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from gpuprof.collectors.manifest import Device, DeviceKind
from gpuprof.collectors.plugins import Plugin, PluginGroup, PluginOrigin

_GIBIBYTE = 2**30
# A driver keeps part of the memory for itself and for ECC: 14.6 of a T4's 16 GiB remain.
_SMALLEST_USABLE_SHARE = 0.88
_LARGEST_USABLE_SHARE = 1.03

# Words of names that belong to a part of a device, whose share of the peaks is not known.
_SLICE = re.compile(r"\bmig\b|\bgrid\b|\bvgpu\b|-\d+[abcq]$")
# Words that make another, slower or faster, chip of the name before them.
_OTHER_CHIP = re.compile(r"\b(laptop|max-q|mobile|super|ti|d)\b")
_VIRTUAL_FUNCTION = re.compile(r"\bvf\b")
# What ROCm reports where it has no marketing name; only the architecture tells.
_GENERIC_NAMES = ("amd radeon graphics", "amd instinct", "")


class Peaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dense rates of one kind of unit, in TFLOP/s (1e12) by precision."""

    unit: Literal["tensor", "vector"]
    tflops: dict[str, float]
    # What products are summed in; int8 is summed in int32.
    accumulate: Literal["fp32", "fp16"] = "fp32"
    # The clock these figures assume; None where the vendor does not say.
    clock_mhz: int | None = None


class DeviceSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the device table. None where the vendor's documents disagree or are silent."""

    name: str
    # Parts of device names, lower case; the longest that matches wins.
    patterns: tuple[str, ...]
    peaks: tuple[Peaks, ...] = ()
    # Memory sizes this device is sold with.
    memory_gib: tuple[int, ...]
    dram_gb_per_s: float | None = None
    # All of the device's L2 together.
    l2_cache_mib: int | None = None
    # Streaming multiprocessors or compute units.
    multiprocessors: int | None = None
    # For AMD: the gfx name, which also finds the row where the name is generic.
    architecture: str | None = None
    # For rows that only this tells apart.
    maximum_clock_mhz: int | None = None
    # Device-to-device links of one device, both directions summed.
    link_gb_per_s: float | None = None
    # The link to the host, both directions summed.
    host_link: Literal["PCIe", "NVLink-C2C"] = "PCIe"
    host_link_gb_per_s: float | None = None
    source: str


class Lookup(msgspec.Struct, frozen=True):
    """The row of a device, or None and the reason in words."""

    spec: DeviceSpec | None
    reason: str = ""


def find_spec(device: Device) -> Lookup:
    """Find the row of `device` by name, then by multiprocessors, memory, architecture and clock.

    Rows of `register_devices` win, and those of plug-ins come last. Only facts of `device` are
    used, never of the machine that runs this.
    """
    if device.kind == "cpu":
        return Lookup(None, "a CPU has no datasheet peak here; its ceilings are measured")
    own = _find_among(tuple(_registered), device)
    if own.spec is not None:
        return own
    built_in = _find_among(device_table(), device)
    if built_in.spec is None and (plugged := _find_among(_plugged(), device)).spec is not None:
        return plugged
    # Where none has it, what is wrong with the user's own row is the more useful reason.
    meant = _longest_pattern(_plain(device.name), tuple(_registered))
    return own if meant and built_in.spec is None else built_in


def rows_with_words(name: str) -> tuple[DeviceSpec, ...]:
    """The rows that a person may mean by `name`: those whose names have all its words."""
    words = name.lower().split()
    return tuple(
        row
        for row in (*_registered, *device_table(), *_plugged())
        if all(any(part.startswith(w) for part in row.name.lower().split()) for w in words)
    )


def find_meant(name: str, kind: DeviceKind) -> Lookup:
    """Find the row of a device that a person named: as a driver would, or by words of the row."""
    found = find_spec(Device(index=0, kind=kind, name=name))
    rows = rows_with_words(name)
    if found.spec is not None or not rows:
        return found
    if len(rows) == 1:
        return Lookup(rows[0])
    *others, last = (row.name for row in rows)
    return Lookup(None, f"{name} could be {', '.join(others)} or {last}")


def register_devices(rows: Sequence[DeviceSpec], *, origin: str) -> None:
    """Let `rows` win over the built-in table in this process. Their sources name `origin`."""
    _registered[:] = [_from(row, origin) for row in rows]


def _from(row: DeviceSpec, origin: str) -> DeviceSpec:
    return msgspec.structs.replace(
        row,
        patterns=tuple(pattern.lower() for pattern in row.patterns),
        source=f"{row.source} ({origin})",
    )


def _find_among(rows: tuple[DeviceSpec, ...], device: Device) -> Lookup:
    name = _plain(device.name)
    architecture = (device.architecture or "").split(":")[0]
    pattern = _longest_pattern(name, rows)
    # What a pattern itself says is meant.
    rest = name.replace(pattern, " ") if pattern else name
    if _SLICE.search(rest) or (device.mig and not _SLICE.search(pattern)):
        return Lookup(None, f"{device.name} is a slice of a GPU; its share of the peaks is unknown")
    if name in _GENERIC_NAMES:
        if not architecture:
            return Lookup(None, f"'{device.name}' names no device, and no gfx name is recorded")
        candidates = [row for row in rows if row.architecture == architecture]
    else:
        if pattern and (other := _OTHER_CHIP.search(rest)):
            return Lookup(
                None, f"{device.name} is not in the device table ('{other[0]}' is another chip)"
            )
        candidates = [row for row in rows if pattern in row.patterns]
    if not candidates:
        return Lookup(None, f"{_description(device)} is not in the device table")
    return _choose(device, architecture, candidates, rest)


# Set by `register_devices`, once at the start of a command.
_registered: list[DeviceSpec] = []


@cache
def device_table() -> tuple[DeviceSpec, ...]:
    """All rows of `devices.toml`."""
    text = files("gpuprof.roofline.machine").joinpath("devices.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).device


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    device: tuple[DeviceSpec, ...]


def _fault(row: DeviceSpec) -> str:
    """What keeps a row from being one that the file could hold."""
    try:
        msgspec.convert(msgspec.to_builtins(row), DeviceSpec)
    except msgspec.ValidationError as error:
        return f"a row of a device that does not fit: {error}"
    return "" if row.patterns and row.source else "a row of a device without a pattern or source"


DEVICES: Final = PluginGroup(
    name="gpuprof.devices",
    adds="device",
    kinds=(DeviceSpec,),
    claims=lambda row: (row.name, *(pattern.lower() for pattern in row.patterns)),
    ours=lambda: [name for row in device_table() for name in (row.name, *row.patterns)],
    fault=_fault,
)


def plugged_row_of(device: Device) -> tuple[tuple[PluginOrigin, str], ...]:
    """The row of a plug-in that `find_spec` finds for `device`, with where it is from, if any."""
    found = find_spec(device).spec
    return tuple(
        (plugin.origin, plugin.value.name) for plugin in DEVICES.load() if _of(plugin) == found
    )


def _plugged() -> tuple[DeviceSpec, ...]:
    return tuple(map(_of, DEVICES.load()))


def _of(plugin: Plugin[DeviceSpec]) -> DeviceSpec:
    return _from(plugin.value, f"plug-in {plugin.origin.distribution}")


def _plain(name: str) -> str:
    return " ".join(name.lower().split())


def _longest_pattern(name: str, rows: tuple[DeviceSpec, ...]) -> str:
    """The longest pattern that stands in `name` as whole words, or ""."""
    found = (
        pattern
        for row in rows
        for pattern in row.patterns
        if re.search(rf"(?<![a-z0-9-]){re.escape(pattern)}(?![a-z0-9-])", name)
    )
    return max(found, key=len, default="")


def _choose(device: Device, architecture: str, candidates: list[DeviceSpec], rest: str) -> Lookup:
    """The one candidate that agrees with everything `device` says of itself.

    `rest` is what the pattern leaves of the name.
    """
    fitting = [row for row in candidates if _agrees(row, device, architecture)]
    if not fitting:
        names = ", ".join(row.name for row in candidates)
        return Lookup(None, f"{_description(device)} has not the size of {names}: another variant")
    if len(fitting) > 1:
        names = " or ".join(row.name for row in fitting)
        return Lookup(None, f"{_description(device)} could be {names}")
    row = fitting[0]
    # A virtual function or partition keeps the name of the whole; only its size tells.
    if _VIRTUAL_FUNCTION.search(rest) and device.multiprocessors is None:
        return Lookup(None, f"{device.name} may be a part of {row.name}: its size is not recorded")
    return Lookup(row)


def _agrees(row: DeviceSpec, device: Device, architecture: str) -> bool:
    """Whether nothing known about `device` contradicts `row`."""
    if row.multiprocessors and device.multiprocessors not in (None, row.multiprocessors):
        return False
    if row.architecture and architecture not in ("", row.architecture):
        return False
    if row.maximum_clock_mhz and device.maximum_sm_clock_mhz not in (None, row.maximum_clock_mhz):
        return False
    if device.total_memory_bytes is None:
        return True
    shares = (device.total_memory_bytes / (size * _GIBIBYTE) for size in row.memory_gib)
    return any(_SMALLEST_USABLE_SHARE <= share <= _LARGEST_USABLE_SHARE for share in shares)


def _description(device: Device) -> str:
    facts = []
    if device.multiprocessors is not None:
        facts.append(f"{device.multiprocessors} multiprocessors")
    if device.total_memory_bytes is not None:
        facts.append(f"{device.total_memory_bytes / _GIBIBYTE:.0f} GiB")
    if device.architecture:
        facts.append(device.architecture)
    return f"{device.name} ({', '.join(facts)})" if facts else device.name
