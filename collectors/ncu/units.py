"""Units of Nsight Compute's values, brought to base units: ns, byte, hz, byte/s, ..."""

from decimal import Decimal
from functools import lru_cache
from importlib.resources import files

import msgspec


class _Unit(msgspec.Struct, frozen=True):
    base: str
    factors: dict[str, str]


class _Table(msgspec.Struct, frozen=True):
    unit: tuple[_Unit, ...]
    per: tuple[_Unit, ...]
    same: dict[str, str]


@lru_cache(maxsize=1024)
def base_unit(unit: str) -> tuple[str, Decimal]:
    """The base unit and what one `unit` is in it. Units the table does not know are base units."""
    table = _table()
    over, slash, under = unit.strip().partition("/")
    base, factor = _find(table.unit, over)
    if slash:
        under_base, under_factor = _find(table.per, under)
        base, factor = f"{base}/{under_base}", factor * under_factor
    return table.same.get(base, base), factor


def _find(units: tuple[_Unit, ...], spelling: str) -> tuple[str, Decimal]:
    for unit in units:
        if spelling in unit.factors:
            return unit.base, Decimal(unit.factors[spelling])
    return spelling, Decimal(1)


@lru_cache(maxsize=1)
def _table() -> _Table:
    text = files("gpuprof.collectors.ncu").joinpath("units.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table)
