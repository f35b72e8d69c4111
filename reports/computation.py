"""How one figure of a capture was computed: its formula with the capture's own inputs."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpuprof.reports import formatting

SymbolUnit: TypeAlias = Literal["s", "FLOP", "FLOP/s", "B", "B/s", "MHz", ""]

_TIMES = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1, ""))


@dataclass(frozen=True)
class Input:
    """One symbol of a formula with its values in this capture, in the unit without a prefix."""

    symbol: str
    meaning: str
    unit: SymbolUnit
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


def exact_text(value: float, unit: SymbolUnit) -> str:
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
