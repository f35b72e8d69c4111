"""The table of formulas, and a formula with the inputs of one capture."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec

from gpuprof.reports import formatting
from gpuprof.reports.computation import Computation, Input, SymbolUnit

# Of a list of values: more are in the JSON only.
_MOST_VALUES = 100


class _Symbol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    unit: SymbolUnit
    meaning: str


class _Formula(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    expression: str
    rule: str
    symbols: tuple[_Symbol, ...]
    docs: str
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    formula: tuple[_Formula, ...]


def computation(name: str, **values: float | Sequence[float]) -> Computation:
    """The formula `name` with a value for each symbol; times in seconds.

    Raises `KeyError` for a name that is no row, or a symbol without a value.
    """
    row = formulas()[name]
    inputs = []
    for symbol in row.symbols:
        given = values[symbol.name]
        several = tuple(given) if isinstance(given, Sequence) else (given,)
        meaning = symbol.meaning
        if len(several) > _MOST_VALUES:
            meaning += f" ({formatting.count(len(several))} values, which the JSON has)"
            several = ()
        inputs.append(Input(symbol.name, meaning, symbol.unit, several))
    return Computation(row.expression, row.rule, tuple(inputs), row.docs, row.source)


@cache
def formulas() -> dict[str, _Formula]:
    """All rows by name."""
    text = files("gpuprof.reports.computed").joinpath("formulas.toml").read_bytes()
    return {row.name: row for row in msgspec.toml.decode(text, type=_Table).formula}


def seconds(nanoseconds: float) -> float:
    """A time of an analysis in the unit of formulas."""
    return nanoseconds / 1e9
