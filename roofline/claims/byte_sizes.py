"""Sizes in bytes as people write them: 64KiB, 256MiB, 4.7MB, 1000000."""

import math
import re

_FACTORS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


def parse_bytes(text: str) -> int:
    """Bytes of "256MiB" (2^20) or "4.7MB" (10^6). Raises `ValueError`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].lower() not in _FACTORS:
        raise ValueError(f"{text!r} is no number of bytes: write 64KiB, 256MiB or 1GB")
    number = float(match[1]) * _FACTORS[match[2].lower()]
    if math.isinf(number):
        raise ValueError(f"{text[:20]!r}... is more bytes than any memory has")
    return round(number)
