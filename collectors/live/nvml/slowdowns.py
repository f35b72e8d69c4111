"""NVML's reasons for a slow-down, in words."""

from collections.abc import Mapping
from typing import Final

# Bits of the clocks-event reasons that mean a slow-down, with NVML's names in words.
SLOWDOWN_REASONS: Final[Mapping[int, str]] = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def slowdown_reasons(bits: int) -> tuple[str, ...]:
    """The names of the slow-downs in one value of `samples.throttle_reasons`."""
    return tuple(name for bit, name in SLOWDOWN_REASONS.items() if bits & bit)
