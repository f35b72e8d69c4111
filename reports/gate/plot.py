"""The paired differences as the page plots them."""

import msgspec

from gpuprof.reports import formatting
from gpuprof.reports.gate import sentences
from gpuprof.roofline.gate.judgement import Judgement, Verdict
from gpuprof.roofline.gate.result import GateResult
from gpuprof.roofline.gate.series import TIME

# More rows of a plot can neither be read nor drawn quickly.
MOST_PLOTTED = 60


class PlotRow(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one benchmark in the plot. Changes are in per cent."""

    label: str
    verdict: Verdict
    pairs: tuple[float, ...]
    mean: float
    interval: tuple[float, float] | None
    # Over this the gate fails it, on the side that is worse.
    limit: float | None


class Plot(msgspec.Struct, frozen=True):
    """The paired differences, the row for the top first."""

    rows: tuple[PlotRow, ...]
    # How many rows have no place in it, in words, or "".
    note: str


def make_plot(result: GateResult) -> Plot | None:
    """The paired differences of what was judged by statistics; None where nothing was."""
    judged = [
        row.judgement
        for row in sentences.rows(result.judgements)
        if row.judgement.pair_changes and row.judgement.change is not None
    ]
    if not judged:
        return None
    shown = tuple(_plot_row(judgement, result) for judgement in judged[:MOST_PLOTTED])
    more = len(judged) - len(shown)
    note = f"Not in this plot: {more} more; the table below has them." if more else ""
    return Plot(shown, note)


def _plot_row(judgement: Judgement, result: GateResult) -> PlotRow:
    assert judgement.change is not None
    name = judgement.benchmark
    if judgement.metric != TIME:
        name = f"{name} {judgement.metric.name}"
    return PlotRow(
        label=formatting.printable(name),
        verdict=judgement.verdict,
        pairs=tuple(100 * change for change in judgement.pair_changes),
        mean=100 * judgement.change,
        interval=judgement.interval and (100 * judgement.interval[0], 100 * judgement.interval[1]),
        limit=None if judgement.limit is None else 100 * judgement.limit,
    )
