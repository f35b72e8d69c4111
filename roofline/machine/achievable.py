"""What good kernels reach of a ceiling: the table achievable.toml."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import msgspec

from gpuprof.roofline.machine.ceilings import Ceiling


@dataclass(frozen=True)
class Achievable:
    """Shares of a ceiling: what large work sustains, and the most that was seen."""

    typical: float
    best: float


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"basis": "from"}):
    source: str
    unit: str
    typical: float
    best: float
    # Where the figures come from.
    basis: str
    precision: str = ""
    work: str = ""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    row: tuple[_Row, ...]


@cache
def _rows() -> tuple[_Row, ...]:
    text = files("gpuprof.roofline.machine").joinpath("achievable.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).row


def achievable(ceiling: Ceiling, work: str) -> Achievable | None:
    """What work of the kind `work` reaches of `ceiling`; None where nothing was measured.

    The row for this kind of work goes before that for the precision.
    """
    unit = ceiling.unit if ceiling.kind == "compute" else ceiling.level
    fitting = [
        row
        for row in _rows()
        if (row.source, row.unit) == (ceiling.source, unit)
        and row.work in ("", work)
        and row.precision in ("", ceiling.precision)
    ]
    if not fitting:
        return None
    row = max(fitting, key=lambda one: (bool(one.work), bool(one.precision)))
    return Achievable(row.typical, row.best)
