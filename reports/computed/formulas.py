"""The table of formulas, and a formula with the inputs of one capture."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

import msgspec

from gpuprof.reports import formatting

Unit: TypeAlias = Literal["s", "FLOP", "FLOP/s", "B", "B/s", "MHz", ""]
Value: TypeAlias = float | Sequence[float]

# Of a list of values: more are in the JSON only.
_MOST_VALUES = 100
_TIMES = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1, ""))


class _Symbol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    unit: Unit
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


@dataclass(frozen=True)
class Input:
    """One symbol of a formula with its values in this capture, in the unit without a prefix."""

    symbol: str
    meaning: str
    unit: Unit
    values: tuple[float, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The values with so many digits that the figure can be computed again."""
        return tuple(exact_text(value, self.unit) for value in self.values)


@dataclass(frozen=True)
class Computation:
    """How a figure was computed: a row of formulas.toml with the inputs of this capture.

    `inputs` is empty where the row has no expression. One of more than 100 values has none here.
    """

    expression: str
    rule: str
    inputs: tuple[Input, ...]
    docs: str
    source: str


def computation(name: str, **values: Value) -> Computation:
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


def exact_text(value: float, unit: Unit) -> str:
    """`value` with all its digits: a time to the nanosecond, a count in full."""
    if unit == "s":
        scale, name = next((each for each in _TIMES if value >= each[0]), _TIMES[-1])
        return f"{_trimmed(f'{value / scale:.9f}')} {name}"
    if unit in ("FLOP", "B"):
        return f"{formatting.count(value)} {unit}"
    if unit in ("FLOP/s", "B/s"):
        factor, prefix = next((each for each in _RATES if value >= each[0]), _RATES[-1])
        return f"{value / factor:.9g} {prefix}{unit}"
    return f"{value:.9g} {unit}".rstrip()


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
