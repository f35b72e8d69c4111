"""The ranks of the job: what each needs by itself, and what it waits for the others."""

from collections.abc import Callable, Sequence
from statistics import fmean, median_low, quantiles
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, HeatMap, Paragraph, Table
from gpuprof.reports.rank_grid import RankGrid, rank_grid
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.rank_figures import RankFigures, RanksAnalysis
from gpuprof.roofline.ranks.late_text import ranks_text

_COLUMNS: Final = (
    Column("Rank", "number"),
    Column("Step", "number"),
    Column("By itself", "number"),
    Column("Late launches", "number"),
    Column("Waits for others", "number"),
    Column("Comes later by", "number"),
    Column("Came last", "number"),
    Column("Trace"),
)
_MOST_ROWS: Final = 20
# From this many ranks on how they are spread is told.
_MANY: Final = 8
_SPREAD: Final = (
    Column("Of one step"),
    Column("Least", "number"),
    Column("P10", "number"),
    Column("Median", "number"),
    Column("P90", "number"),
    Column("P99", "number"),
    Column("Most", "number"),
    Column("Rank of it", "number"),
)
_PERCENTILES: Final = (0, 10, 50, 90, 99, 100)

FigureOfRank = Callable[[RankFigures], float | None]


def _summary(analysis: Analysis) -> Sequence[Block]:
    ranks = analysis.ranks
    if ranks is None:
        return ()
    notes = [f"this is rank {analysis.rank}"] if analysis.holds_work else []
    if ranks.missing:
        notes.append(f"{ranks_text(ranks.missing)} {_are(ranks.missing)} missing")
    needs = [(value, one) for one in ranks.ranks if (value := _own_ns(one)) is not None]
    if len(needs) >= _MANY:
        most_ns, most = max(needs, key=lambda each: each[0])
        usual = formatting.duration(median_low([value for value, _ in needs]))
        longest = f"rank {most.rank} {formatting.duration(most_ns)}"
        notes.append(f"by itself a rank needs {usual} a step (median), {longest}")
    here = f"{formatting.count(len(ranks.ranks))} of {formatting.count(ranks.world_size)}"
    return (Facts((Fact("Ranks", here, "; ".join(notes)),)),)


def _body(analysis: Analysis) -> Sequence[Block]:
    ranks = analysis.ranks
    if ranks is None or not analysis.holds_work:
        return ()
    blocks: list[Block] = [Paragraph(_lead(ranks))]
    if ranks.missing:
        text = f"{ranks_text(ranks.missing)} of the job {_are(ranks.missing)} not here."
        if ranks.matched:
            text += " Whoever is waited for is the last of those that are."
        blocks.append(Paragraph(formatting.sentence(text), "note"))
    if len(ranks.ranks) >= _MANY:
        blocks.append(_spread(ranks.ranks))
    grid = rank_grid(ranks.ranks)
    if grid is not None and len(ranks.ranks) > 1:
        blocks.append(_heat_map(grid))
    shown = _outliers_first(ranks)[:_MOST_ROWS]
    blocks.append(_table(shown))
    if len(shown) < len(ranks.ranks):
        more = formatting.count(len(ranks.ranks) - len(shown))
        text = f"And {more} more. Those come first that make others wait or are furthest from the "
        blocks.append(Paragraph(f"{text}median; JSON has all.", "note"))
    return tuple(blocks)


def _lead(ranks: RanksAnalysis) -> str:
    known = f"{formatting.count(ranks.matched)} of {formatting.count(ranks.collectives)} here"
    return (
        "Means for one profiled step. By itself: the device works, or its host keeps it from that "
        "as it would without the profiler. Late launches, which the profiler lengthens, are apart. "
        "What a rank waits in collectives for those that come later is known of collectives that "
        f"all ranks recorded of which anything is known: {known}."
    )


def _are(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _own_ns(one: RankFigures) -> float | None:
    return _mean([step.own_ns for step in one.steps])


def _length_ns(one: RankFigures) -> float | None:
    return _mean([step.length_ns for step in one.steps])


def _launch_ns(one: RankFigures) -> float | None:
    return _mean([step.launch_ns for step in one.steps])


def _wait_ns(one: RankFigures) -> float | None:
    return _mean([step.wait_ns for step in one.steps if step.wait_ns is not None])


def _mean(lengths_ns: Sequence[int]) -> float | None:
    return fmean(lengths_ns) if lengths_ns else None


def _spread(ranks: Sequence[RankFigures]) -> Table:
    """How the figures are spread over the ranks."""
    figures: tuple[tuple[str, FigureOfRank], ...] = (
        ("Length", _length_ns),
        ("By itself", _own_ns),
        ("Late launches", _launch_ns),
        ("Waits for others", _wait_ns),
    )
    rows = []
    for name, figure in figures:
        known = [(value, one.rank) for one in ranks if (value := figure(one)) is not None]
        if known:
            values = _percentiles([value for value, _ in known])
            _, most = max(known)
            rows.append((name, *map(formatting.duration, values), str(most)))
    return Table(_SPREAD, tuple(rows))


def _percentiles(values: Sequence[float]) -> list[float]:
    """Those of `_PERCENTILES`, between neighbours in proportion."""
    if len(values) < 2:
        return [*values] * len(_PERCENTILES)
    cuts = [min(values), *quantiles(values, n=100, method="inclusive"), max(values)]
    return [cuts[percentile] for percentile in _PERCENTILES]


def _heat_map(grid: RankGrid) -> HeatMap:
    row_heads = tuple(_span("rank", span) for span in grid.ranks)
    column_heads = tuple(_span("step", span) for span in grid.steps)
    shared = any(first < last for first, last in (*grid.ranks, *grid.steps))
    caption = "What each rank needs by itself in each step beyond the median of all ranks."
    if shared:
        caption += " Neighbours share a cell, which shows the one that needs most."
    return HeatMap(
        row_heads,
        column_heads,
        tuple(
            tuple(None if cell is None else cell.beyond_ns for cell in row) for row in grid.cells
        ),
        tuple(
            tuple(
                f"{row_head}, {column_head}: unknown"
                if cell is None
                else f"rank {cell.rank}, step {cell.step}: {formatting.duration(cell.beyond_ns)}"
                for cell, column_head in zip(row, column_heads, strict=True)
            )
            for row, row_head in zip(grid.cells, row_heads, strict=True)
        ),
        caption,
    )


def _span(what: str, span: tuple[int, int]) -> str:
    first, last = span
    return f"{what} {first}" if first == last else f"{what}s {first}-{last}"


def _outliers_first(ranks: RanksAnalysis) -> list[RankFigures]:
    """Stragglers, ranks that disagree, those that are late in turn with others or launch late, then
    the furthest from the median.

    All of a few ranks stay in order.
    """
    if len(ranks.ranks) <= _MOST_ROWS:
        return list(ranks.ranks)
    in_turn = [late.rank for late in ranks.stragglers if late.pattern == "moving"]
    named = [late.rank for late in ranks.stragglers if late.pattern != "moving"]
    named += [rank for each in ranks.disagreements for rank in each.ranks]
    named += in_turn
    named += [late.rank for late in ranks.late_launches]
    place = {rank: index for index, rank in reversed(list(enumerate(named)))}
    known = [value for one in ranks.ranks if (value := _own_ns(one)) is not None]
    usual_ns = median_low(known) if known else 0.0

    def order(one: RankFigures) -> tuple[int, float, int]:
        own_ns = _own_ns(one)
        away_ns = 0.0 if own_ns is None else abs(own_ns - usual_ns)
        return place.get(one.rank, len(named)), -away_ns, one.rank

    return sorted(ranks.ranks, key=order)


def _table(ranks: Sequence[RankFigures]) -> Table:
    # Without common clocks nothing is known of the arrivals; of one capture all have its title.
    left_out = {
        "Comes later by": all(one.skew_ns is None for one in ranks),
        "Trace": len({one.title for one in ranks}) == 1,
    }
    kept = [index for index, column in enumerate(_COLUMNS) if not left_out.get(column.head)]
    rows = tuple(map(_row, ranks))
    return Table(
        tuple(_COLUMNS[index] for index in kept),
        tuple(tuple(row[index] for index in kept) for row in rows),
    )


def _row(one: RankFigures) -> tuple[str, ...]:
    return (
        str(one.rank),
        formatting.duration(_length_ns(one)),
        formatting.duration(_own_ns(one)),
        formatting.duration(_launch_ns(one)),
        formatting.duration(_wait_ns(one)),
        formatting.duration(one.skew_ns),
        f"{one.came_last} of {one.collectives}" if one.collectives else formatting.UNKNOWN,
        one.title,
    )


SECTION = Section(
    key="ranks", title=titled("Ranks"), fields=("ranks",), summary=_summary, body=_body
)
