"""The caches of the CPU, as Linux describes them: what they hold together, level by level."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CPUS: Final = Path("/sys/devices/system/cpu")
_UNITS: Final = {"K": 1024, "M": 1024**2}


@dataclass(frozen=True)
class CacheLevel:
    """The data caches of one level that the usable cores have, each shared by some of them."""

    level: int
    # Of each cache, the largest first: cores of two kinds have caches of two sizes.
    sizes_bytes: tuple[int, ...]

    @property
    def total_bytes(self) -> int:
        """What they hold together."""
        return sum(self.sizes_bytes)

    def reached_bytes(self, threads: int) -> int:
        """What those hold together that as many threads can be near to."""
        return sum(self.sizes_bytes[:threads])


def cache_levels(cpus: Path = _CPUS) -> tuple[CacheLevel, ...]:
    """The levels from the first on; none where the system does not describe them.

    In a virtual machine a cache may be shared with others, who are not seen from inside.
    """
    sizes: dict[int, dict[str, int]] = {}
    for core in usable_core_numbers():
        for folder in sorted(cpus.glob(f"cpu{core}/cache/index*")):
            try:
                kind, level, size, sharers = (
                    (folder / name).read_text().strip()
                    for name in ("type", "level", "size", "shared_cpu_list")
                )
            except OSError:
                continue
            if kind != "Instruction" and (held := _bytes(size)):
                sizes.setdefault(int(level), {})[sharers] = held
    return tuple(
        CacheLevel(level, tuple(sorted(caches.values(), reverse=True)))
        for level, caches in sorted(sizes.items())
    )


def last_level_cache_bytes() -> int | None:
    """What the caches of the last level hold together; None where that is not known."""
    return max((level.total_bytes for level in cache_levels()), default=None)


def usable_core_numbers() -> list[int]:
    """The cores that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _bytes(size: str) -> int:
    """ "1024K" as a number; 0 where it is none."""
    digits, unit = size.rstrip("KM"), size[-1:]
    return int(digits) * _UNITS.get(unit, 1) if digits.isdigit() else 0
