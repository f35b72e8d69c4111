"""What a Chrome trace says before its events, with Kineto's keys."""

from typing import Any, Final

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import ProcessInfo

# Kineto adds the base to every time; a larger one would not fit beside them into int64.
_LATEST_BASE_NS: Final = 4_000_000_000_000_000_000


def process_fields(info: ProcessInfo) -> dict[str, Any]:
    """What Kineto says of a process beside its events, by key."""
    facts = info.fingerprint
    gpus = [device for device in facts.devices if device.kind != "cpu"]
    devices = []
    for device in gpus:
        major, _, minor = (device.compute_capability or "").partition(".")
        properties = {
            "id": device.index,
            "name": device.name,
            "totalGlobalMem": device.total_memory_bytes,
            "computeMajor": int(major) if major.isdecimal() else None,
            "computeMinor": int(minor) if minor.isdecimal() else None,
            "warpSize": device.warp_size,
            "numSms": device.multiprocessors,
        }
        devices.append(known(properties))
    fields: dict[str, Any] = {"deviceProperties": devices}
    if info.world_size > 1:
        fields["distributedInfo"] = {"rank": info.rank, "world_size": info.world_size}
    if facts.hip is not None or any(device.kind == "hip" for device in gpus):
        fields["hip_runtime_version"] = facts.hip
    version = (facts.cuda or "").split(".")
    if len(version) == 2 and all(part.isdecimal() for part in version):
        # As CUDA packs it: 13.0 is 13000.
        fields["cuda_runtime_version"] = int(version[0]) * 1000 + int(version[1]) * 10
    return fields


def base_ns(capture: Capture) -> int:
    """The earliest time of the capture, where it can be a base: numbers after it stay short."""
    columns = (
        frame[column].min()
        for frame in capture.tables().values()
        for column in ("start_ns", "time_ns")
        if column in frame.columns
    )
    earliest = min((time for time in columns if isinstance(time, int)), default=0)
    return earliest if 0 <= earliest <= _LATEST_BASE_NS else 0


def known(values: dict[str, Any]) -> dict[str, Any]:
    """What is known of `values`: a trace leaves out what it does not know."""
    return {key: value for key, value in values.items() if value is not None}
