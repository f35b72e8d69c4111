"""How a CSV file writes numbers: Nsight Compute prints them in the locale of its user.

One value may not tell ("1,234" is 1234 or 1.234), so the format is inferred over the whole file.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from gpuprof.collectors.errors import CaptureError

Separator = Literal[".", ","]

_NUMBER: Final = re.compile(r"([+-]?)([0-9][0-9.,' \u2019\u00a0\u202f]*)((?:[eE][+-]?[0-9]{1,3})?)")
# These only ever group digits.
_PURE_GROUPING: Final = re.compile(r"[' \u2019\u00a0\u202f]")
# `ncu --print-metric-instances values` appends the instances: "12 (3; 4; 5)".
_INSTANCES: Final = re.compile(r"\s*\([^()]*\)$")


@dataclass(frozen=True)
class NumberFormat:
    """`decimal` is the decimal separator; the other of "." and "," groups digits."""

    decimal: Separator

    def parse(self, text: str) -> Decimal | None:
        """The number that `text` is, or None where it is none ("n/a", "no data", "nan", "")."""
        return _parse(text, self.decimal)


def infer(path: Path, values: Iterable[tuple[str, str]]) -> NumberFormat:
    """The format that all of `values`, pairs of place and text, are written in.

    Certain are: both separators in one number, one separator repeated, and a single separator that
    is not followed by exactly three digits or stands where no group of digits could end. Raises
    `CaptureError` where there is no certain value but an ambiguous one, or two that contradict.
    """
    found: dict[Separator, str] = {}
    ambiguous = ""
    for place, text in values:
        separator = _decimal_separator(text)
        if separator is None:
            continue
        if separator == "ambiguous":
            ambiguous = ambiguous or f"{place}: {text}"
            continue
        found.setdefault(separator, f"{place}: {text}")
        if len(found) == 2:
            raise CaptureError(
                path,
                f"numbers in two formats ({found['.']} and {found[',']})",
                expected="one locale in the whole file",
                remedy="run ncu with LC_ALL=C",
            )
    if not found and ambiguous:
        raise CaptureError(
            path,
            f"the decimal separator cannot be told: it may be a comma or a point in {ambiguous}",
            remedy="run ncu with --print-units base, or with LC_ALL=C and more metrics",
        )
    return NumberFormat(next(iter(found), "."))


# A page repeats many values: most counters of most launches are 0.
@lru_cache(maxsize=4096)
def _parse(text: str, decimal: Separator) -> Decimal | None:
    match = _match(text)
    if match is None:
        return None
    sign, digits, exponent = match.groups()
    whole, _, fraction = _PURE_GROUPING.sub("", digits).partition(decimal)
    groups = whole.split(_other(decimal))
    if len(groups) > 1 and not _well_grouped(groups):
        return None
    if not re.fullmatch(r"[0-9]*", fraction):
        return None
    return Decimal(f"{sign}{''.join(groups)}.{fraction or 0}{exponent}")


@lru_cache(maxsize=4096)
def _decimal_separator(text: str) -> Separator | Literal["ambiguous"] | None:
    """What one value says about the decimal separator; None where it says nothing."""
    match = _match(text)
    if match is None:
        return None
    digits = _PURE_GROUPING.sub("", match[2])
    points, commas = digits.count("."), digits.count(",")
    if not points and not commas:
        return None
    if points and commas:
        return "." if digits.rindex(".") > digits.rindex(",") else ","
    separator: Separator = "." if points else ","
    groups = digits.split(separator)
    if len(groups) > 2:
        return _other(separator)
    return "ambiguous" if _well_grouped(groups) else separator


def _well_grouped(groups: list[str]) -> bool:
    """Whether these can be groups of one whole number, as 1,234,567 or 12,34,567 has them."""
    first, *middle, last = groups
    return (
        1 <= len(first) <= 3
        and not first.startswith("0")
        and all(len(group) in (2, 3) for group in middle)
        and len(last) == 3
    )


def _other(separator: Separator) -> Separator:
    return "," if separator == "." else "."


def _match(text: str) -> re.Match[str] | None:
    text = text.strip()
    return _NUMBER.fullmatch(_INSTANCES.sub("", text) if text.endswith(")") else text)
