"""The fields of a trace beside its events: devices, rank, versions, clock base."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuprof.collectors.communicators import ProcessGroup
from gpuprof.collectors.kineto.lenient import integer
from gpuprof.collectors.manifest import Device, DeviceKind, Fingerprint
from gpuprof.collectors.rank_numbers import MOST_RANKS

# Larger bases cannot be added to an event's time within int64.
_BASE_LIMIT_NS: Final = 4_000_000_000_000_000_000
_AMD_NAME: Final = re.compile(r"\bAMD\b|Radeon|Instinct", re.IGNORECASE)
# Every AMD data-centre GPU runs 64 lanes a wavefront, every NVIDIA GPU 32.
_AMD_WARP: Final = 64


def rank(metadata: Mapping[str, Any]) -> tuple[int, int] | None:
    """The process's rank and the number of ranks; None where the trace does not say its rank."""
    info = metadata.get("distributedInfo")
    if not isinstance(info, dict):
        return None
    number = integer(info.get("rank"))
    size = integer(info.get("world_size"))
    if number is None or not 0 <= number < MOST_RANKS:
        return None
    return number, size if size is not None and number < size <= MOST_RANKS else number + 1


def group_sizes(metadata: Mapping[str, Any]) -> dict[str, int]:
    """The number of ranks of each process group that the trace names."""
    sizes = {name: integer(group.get("pg_size")) for name, group in _groups(metadata)}
    return {name: size for name, size in sizes.items() if size is not None and size > 0}


def process_groups(metadata: Mapping[str, Any]) -> tuple[ProcessGroup, ...]:
    """The process groups of which the trace names all ranks."""
    sizes = group_sizes(metadata)
    found = []
    for name, group in _groups(metadata):
        listed = group.get("ranks")
        ranks = [integer(rank) for rank in (listed if isinstance(listed, list) else ())]
        known = tuple(rank for rank in ranks if rank is not None and 0 <= rank < MOST_RANKS)
        description = group.get("pg_desc")
        if known and len(known) == sizes.get(name):
            text = description if isinstance(description, str) else ""
            found.append(ProcessGroup(name=name, description=text, ranks=known))
    return tuple(found)


def _groups(metadata: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    info = metadata.get("distributedInfo")
    groups = info.get("pg_config") if isinstance(info, dict) else None
    for group in groups if isinstance(groups, list) else ():
        name = group.get("pg_name") if isinstance(group, dict) else None
        if isinstance(name, str):
            yield name, group


def base_ns(metadata: Mapping[str, Any]) -> int | None:
    """What to add to every time, or None where the trace has no usable base."""
    base = integer(metadata.get("baseTimeNanoseconds"))
    return base if base is not None and 0 <= base <= _BASE_LIMIT_NS else None


def fingerprint(metadata: Mapping[str, Any]) -> Fingerprint:
    """The devices and versions that the trace names."""
    rocm = any(key.startswith(("hip_", "roctracer", "rocprofiler")) for key in metadata)
    devices = metadata.get("deviceProperties")
    return Fingerprint(
        devices=tuple(
            _device(properties, position, rocm)
            for position, properties in enumerate(devices if isinstance(devices, list) else ())
            if isinstance(properties, dict)
        ),
        cuda=_version(metadata.get("cuda_runtime_version")),
        hip=_text(metadata.get("hip_runtime_version")),
    )


def _device(properties: dict[str, Any], position: int, rocm: bool) -> Device:
    name = properties.get("name")
    name = name if isinstance(name, str) else ""
    warp = integer(properties.get("warpSize"))
    kind: DeviceKind = "hip" if rocm or warp == _AMD_WARP or _AMD_NAME.search(name) else "cuda"
    major = integer(properties.get("computeMajor"))
    minor = integer(properties.get("computeMinor"))
    index = integer(properties.get("id"))
    return Device(
        index=position if index is None else index,
        kind=kind,
        name=name,
        total_memory_bytes=integer(properties.get("totalGlobalMem")),
        multiprocessors=integer(properties.get("numSms")),
        # ROCm fills these with numbers that name no compute capability.
        compute_capability=(
            f"{major}.{minor}"
            if kind == "cuda" and major is not None and minor is not None
            else None
        ),
        warp_size=warp,
    )


def _version(value: object) -> str | None:
    # CUDA packs 13.0 as 13000: major * 1000 + minor * 10.
    number = integer(value)
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _text(value: object) -> str | None:
    number = integer(value)
    return None if number is None else str(number)
