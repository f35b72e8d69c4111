"""The settings of a capture that cost, each with its evidence."""

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.collectors.manifest import Device, Fingerprint, ProcessInfo
from gpuprof.collectors.settings import Setting, settings, values_in_force
from gpuprof.roofline.setting_figures import CostlySetting, Settings
from gpuprof.roofline.settings.evidence import find_evidence
from gpuprof.roofline.settings.known import CostEvidence, KnownOfStep


def settings_of(fingerprint: Fingerprint, device: Device | None, known: KnownOfStep) -> Settings:
    """Settings that cost, and those that are set without showing a cost here.

    On a CPU nothing is said of a GPU's.
    """
    values = values_in_force(fingerprint)
    costly, harmless = [], []
    for row in settings():
        value = row.slow_value(values)
        if row.slow and value is None:
            continue
        evidence = find_evidence(row.evidence, known) if _matters(row, device) else None
        if evidence is not None:
            costly.append(_costly(row, value, evidence))
        elif value is not None:
            harmless.append(f"{row.name}={value}")
    order = sorted(costly, key=lambda found: (not found.falsifies, -(found.gain_ns or 0)))
    return Settings(costly=tuple(order), harmless=tuple(harmless))


def calls_of_profiled_steps(capture: Capture) -> pl.DataFrame:
    """The runtime and driver calls that began in a profiled step of a one-rank capture.

    None of a profile that was taken before the timed steps: its step sets the program up.
    """
    profiled, timed = (
        capture.steps.filter(pl.col("phase") == phase).sort("start_ns")
        for phase in ("profiled", "timed")
    )
    calls = capture.launches.select("name", "start_ns", "end_ns").drop_nulls().sort("start_ns")
    if profiled.height and timed.height and profiled["start_ns"][0] < timed["start_ns"][0]:
        return calls.clear()
    begun = calls.join_asof(profiled.select("start_ns", until_ns="end_ns"), on="start_ns")
    return begun.filter(pl.col("start_ns") < pl.col("until_ns"))


def health_of(process: ProcessInfo, device: Device | None) -> DeviceHealth | None:
    """What the driver said of `device`."""
    if device is None or device.kind == "cpu":
        return None
    return next((each for each in process.device_health if each.index == device.index), None)


def _matters(row: Setting, device: Device | None) -> bool:
    """Whether what a row is about can cost on the device."""
    return row.evidence == "waiting for a core" or (device is not None and device.kind != "cpu")


def _costly(row: Setting, value: str | None, evidence: CostEvidence) -> CostlySetting:
    return CostlySetting(
        name=row.name,
        value=value or "",
        does=row.does,
        remedy=row.remedy,
        evidence=evidence.sentence,
        gain_ns=evidence.gain_ns,
        assumption=evidence.assumption,
        falsifies=row.alarming,
        source=row.source,
    )
