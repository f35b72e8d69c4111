"""The history of benchmarks as a table, and the sentences below it."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from gpuprof.reports.formatting import UNKNOWN, date, printable
from gpuprof.reports.gate.sentences import value
from gpuprof.roofline.gate.history import ChangePoint, HistorySeries

_COLUMNS = ("Benchmark", "Device", "Gates", "First", "Last", "Change", "Points")
_NAMES = ("Benchmark", "Device")


def history_table(
    series: Sequence[HistorySeries], changes: Sequence[Sequence[ChangePoint]] | None
) -> Table:
    """One row a series; without `changes` nobody looked for change points."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for column in _COLUMNS:
        name = column in _NAMES
        table.add_column(
            column, justify="left" if name else "right", overflow="fold", no_wrap=not name
        )
    for index, one in enumerate(series):
        table.add_row(
            Text(printable(one.benchmark)),
            Text(printable(one.device)),
            str(len(one.points)),
            value(one.points[0].value, one.unit),
            value(one.points[-1].value, one.unit),
            UNKNOWN if one.change is None else f"{one.change:+.1%}",
            UNKNOWN if changes is None else str(len(changes[index])),
        )
    return table


def change_sentences(
    series: Sequence[HistorySeries], changes: Sequence[Sequence[ChangePoint]]
) -> Iterator[str]:
    """A sentence for each of the `changes` of each series."""
    for one, found in zip(series, changes, strict=True):
        for change in found:
            point = one.points[change.index]
            at = f"{date(point.measured_ns)} ({(point.commit or 'no commit')[:10]})"
            yield (
                f"{printable(one.benchmark)} {one.metric}: {100 * change.change:+.1f} % "
                f"from {printable(at)} on ({_chance(change.p_value)}), advisory"
            )


def _chance(p_value: float) -> str:
    # Otava rounds to six places.
    return f"p = {p_value:.1g}" if p_value > 0 else "p < 1e-06"
