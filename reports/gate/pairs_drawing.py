"""The paired differences as a drawing that needs no script: a strip for each row of the plot."""

from dataclasses import dataclass

from gpuprof.reports.gate.plot import Plot, PlotRow
from gpuprof.reports.html.scale import Scale, scale_of
from gpuprof.roofline.gate.judgement import Verdict


@dataclass(frozen=True)
class Strip:
    """One row; places are in per cent of its length."""

    label: str
    verdict: Verdict
    dots: tuple[float, ...]
    mean: float
    # Where the 95 % interval begins, and its length.
    interval: tuple[float, float] | None
    limit: float | None


@dataclass(frozen=True)
class PairsDrawing:
    """All strips, the place of no change, and the axis below: (place, words)."""

    strips: tuple[Strip, ...]
    zero: float
    ticks: tuple[tuple[float, str], ...]


def draw_pairs(plot: Plot) -> PairsDrawing:
    """The strips of `plot`, on one axis."""
    scale = scale_of(0.0, *(value for row in plot.rows for value in _values(row)))
    return PairsDrawing(
        strips=tuple(_strip(row, scale) for row in plot.rows),
        zero=scale.at(0.0),
        ticks=tuple((scale.at(value), f"{value:g} %") for value in scale.ticks()),
    )


def _values(row: PlotRow) -> list[float]:
    limit = [] if row.limit is None else [row.limit]
    return [*row.pairs, row.mean, *(row.interval or ()), *limit]


def _strip(row: PlotRow, scale: Scale) -> Strip:
    interval = None
    if row.interval is not None:
        low, high = map(scale.at, row.interval)
        interval = (low, round(high - low, 2))
    return Strip(
        label=row.label,
        verdict=row.verdict,
        dots=tuple(map(scale.at, row.pairs)),
        mean=scale.at(row.mean),
        interval=interval,
        limit=None if row.limit is None else scale.at(row.limit),
    )
