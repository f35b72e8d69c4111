"""Whether two fingerprints are of environments whose speeds can be compared.

Strict facts decide how fast the same program runs; a difference in one makes a comparison void.
Advisory ones may: they are said beside the verdict.
"""

import hashlib
from dataclasses import dataclass

import msgspec

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.collectors.settings import advisory_variables

# None where they are at their default.
_SET_CLOCKS = ("application_graphics_clock_mhz", "application_memory_clock_mhz")
_STRICT_DEVICE = (
    "kind",
    "name",
    "total_memory_bytes",
    "multiprocessors",
    "compute_capability",
    "architecture",
    "power_limit_milliwatts",
    "mig",
    *_SET_CLOCKS,
)
_STRICT = (
    "cuda",
    "hip",
    "torch",
    "triton",
    "cudnn",
    "nccl",
    "torch_threads",
    "float32_matmul_precision",
    "allow_tf32_matmul",
    "allow_tf32_cudnn",
)
_ADVISORY = ("python", "platform", "cpu", "cpu_cores", "cpu_governor", "cpu_quota_cores")
# Who a process is among the others, not how fast it runs.
_IDENTITY_VARIABLES = ("RANK", "LOCAL_RANK")


def _unimportant() -> frozenset[str]:
    """Variables that do not decide how fast a program runs."""
    return frozenset((*_IDENTITY_VARIABLES, *advisory_variables()))


@dataclass(frozen=True)
class Differences:
    """What differs, each as "driver: 550 against 570" with the first fingerprint's value first."""

    strict: tuple[str, ...]
    advisory: tuple[str, ...]


def differences(first: Fingerprint, second: Fingerprint) -> Differences:
    """What differs between two environments."""
    strict, advisory = [], []
    if len(first.devices) != len(second.devices):
        strict.append(_against("number of devices", len(first.devices), len(second.devices)))
    for one, other in zip(first.devices, second.devices, strict=False):
        strict += _fields(one, other, _STRICT_DEVICE, "device ")
        if one.kind != "cpu":
            advisory += _fields(one, other, ("uuid",), "device ")
    # Patch releases of a driver share its kernels and its compiler.
    majors = [None if f.driver is None else f.driver.split(".")[0] for f in (first, second)]
    if majors[0] != majors[1]:
        strict.append(_against("driver", first.driver, second.driver))
    elif first.driver != second.driver:
        advisory.append(_against("driver", first.driver, second.driver))
    strict += _fields(first, second, _STRICT)
    advisory += _fields(first, second, _ADVISORY)
    changed = {
        name: _against(name, one.get(name), other.get(name))
        for one, other in (
            (first.environment, second.environment),
            _settings_of_both(first, second),
        )
        for name in sorted({*one, *other} - set(_IDENTITY_VARIABLES))
        if one.get(name) != other.get(name)
    }
    unimportant = _unimportant()
    strict += [said for name, said in changed.items() if name not in unimportant]
    advisory += [said for name, said in changed.items() if name in unimportant]
    return Differences(tuple(strict), tuple(advisory))


def _settings_of_both(
    first: Fingerprint, second: Fingerprint
) -> tuple[dict[str, str], dict[str, str]]:
    """torch's settings of two environments; none where either did not look."""
    one, other = first.torch_settings, second.torch_settings
    return ({}, {}) if one is None or other is None else (one, other)


def _fields(
    first: Fingerprint | Device,
    second: Fingerprint | Device,
    names: tuple[str, ...],
    prefix: str = "",
) -> list[str]:
    return [
        _against(prefix + name.replace("_", " "), getattr(first, name), getattr(second, name))
        for name in names
        if getattr(first, name) != getattr(second, name)
    ]


def _against(what: str, first: object, second: object) -> str:
    one, other = ("not set" if value is None else value for value in (first, second))
    return f"{what}: {one} against {other}"


def strict_key(fingerprint: Fingerprint) -> str:
    """A short hash that two fingerprints share where nothing strict differs between them."""
    facts = [
        *(_device_facts(device) for device in fingerprint.devices),
        fingerprint.driver and fingerprint.driver.split(".")[0],
        *(getattr(fingerprint, name) for name in _STRICT),
        sorted(
            (name, value)
            for name, value in (
                *fingerprint.environment.items(),
                *(fingerprint.torch_settings or {}).items(),
            )
            if name not in _unimportant()
        ),
    ]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:12]


def _device_facts(device: Device) -> list[object]:
    plain = [getattr(device, name) for name in _STRICT_DEVICE if name not in _SET_CLOCKS]
    # Clocks at their default leave the key as it was before they were looked at.
    clocks = [(name, mhz) for name in _SET_CLOCKS if (mhz := getattr(device, name)) is not None]
    return [*plain, *clocks]
