"""Settings that can make a program slower: the rows of `settings.toml`, and which are in force."""

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from gpuprof.collectors.manifest import Fingerprint

Where = Literal["variable", "torch", "machine"]


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row of `settings.toml`, which says what the fields are."""

    name: str
    where: Where
    slow: tuple[str, ...] = ()
    does: str
    cost: str
    evidence: str
    alarming: bool = False
    advisory: bool = False
    remedy: str
    source: str

    def slow_value(self, values: dict[str, str]) -> str | None:
        """The value that is in force, where it is one that can cost; else None."""
        value = values.get(self.name)
        if value is None:
            return None
        return value if "*" in self.slow or value.lower() in self.slow else None


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    setting: tuple[Setting, ...]


@cache
def settings() -> tuple[Setting, ...]:
    """All rows, in their order."""
    text = files("gpuprof.collectors").joinpath("settings.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).setting


def setting_variables() -> tuple[str, ...]:
    """The environment variables among them. None holds a secret."""
    return tuple(row.name for row in settings() if row.where == "variable")


def advisory_variables() -> tuple[str, ...]:
    """Those that only change what is printed."""
    return tuple(row.name for row in settings() if row.where == "variable" and row.advisory)


def values_in_force(fingerprint: Fingerprint) -> dict[str, str]:
    """The values of all settings that are not at their default, by the name of their row."""
    of_torch = fingerprint.torch_settings or {}
    return {**fingerprint.environment, **of_torch, **_of_machine(fingerprint)}


def _of_machine(fingerprint: Fingerprint) -> dict[str, str]:
    found = {}
    if fingerprint.cpu_governor is not None:
        found["CPU governor"] = fingerprint.cpu_governor
    threads, cores = fingerprint.torch_threads, fingerprint.cpu_cores
    if threads is None or cores is None:
        return found
    processes = _local_processes(fingerprint)
    threads, quota = threads * processes, fingerprint.cpu_quota_cores
    if quota is not None and threads > quota:
        found["CPU quota"] = f"{quota:g} of {cores} cores, {threads} threads"
    elif threads > cores:
        found["torch threads"] = f"{threads} of {processes} processes on {cores} cores"
    return found


def _local_processes(fingerprint: Fingerprint) -> int:
    """Processes of the program on this machine, as torchrun says."""
    text = fingerprint.environment.get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() and int(text) else 1
