"""Copies between memories, as the names of their activities tell them.

CUPTI's names, which Kineto and Nsight Systems pass on: "Memcpy HtoD (Pageable -> Device)". ROCm's
say "Host" for both kinds of host memory.
"""

import re
from typing import Final

import polars as pl

# Arrays lie on the device too.
_WITHIN_A_DEVICE: Final = "DtoD|DeviceToDevice|AtoA|AtoD|DtoA"
_PLACE: Final = "(H(?:ost)?|D(?:evice)?|P(?:eer)?|A(?:rray)?)"
_DIRECTION: Final = re.compile(f"{_PLACE}to{_PLACE}", re.IGNORECASE)
_DIRECTIONS: Final = {
    "HD": "host to device",
    "HA": "host to device",
    "DH": "device to host",
    "AH": "device to host",
    "PP": "device to device",
    "HH": "host to host",
}
_HOST_MEMORY: Final = re.compile(r"\b(pageable|pinned)\b", re.IGNORECASE)


def over_link() -> pl.Expr:
    """Whether a row of `kernels` copies to or from the host or another device.

    What stays within a device is memory traffic like that of any kernel.
    """
    return (pl.col("kind") == "memcpy") & ~pl.col("name").str.contains(_WITHIN_A_DEVICE)


def is_over_link(kind: str, name: str) -> bool:
    """`over_link` of one piece of device work."""
    return kind == "memcpy" and re.search(_WITHIN_A_DEVICE, name) is None


def direction(name: str) -> str:
    """ "host to device" and so on; "" where the name does not tell."""
    found = _DIRECTION.search(name)
    return "" if found is None else _DIRECTIONS.get((found[1][0] + found[2][0]).upper(), "")


def host_memory(name: str) -> str:
    """ "pageable" or "pinned"; "" where the name does not tell."""
    found = _HOST_MEMORY.search(name)
    return "" if found is None else found[1].lower()
