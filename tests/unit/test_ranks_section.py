"""The section of ranks: of a thousand the outliers, and a picture in which one of them shows."""

from statistics import median_low

import msgspec
import numpy as np
import pytest

from gpuprof.reports import formatting
from gpuprof.reports.blocks import HeatMap, Paragraph, Table
from gpuprof.reports.html.heat_map import make_heat_map
from gpuprof.reports.html.page import render_html
from gpuprof.reports.rank_grid import rank_grid
from gpuprof.reports.sections.ranks import SECTION
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.rank_figures import RankDisagreement, RankFigures, RanksAnalysis, RankStep

LATE = 777
LATE_NS = 4_000_000


def ranks_of(count: int, steps: int) -> tuple[RankFigures, ...]:
    """Ranks that need 10 ms a step, within 0.1 ms, and `LATE`, which needs 4 ms more."""
    generator = np.random.default_rng(0)
    return tuple(
        RankFigures(
            rank=rank,
            steps=tuple(
                RankStep(
                    index=index,
                    length_ns=15_000_000,
                    own_ns=10_000_000 + int(generator.integers(100_000)) + LATE_NS * (rank == LATE),
                    launch_ns=0,
                    wait_ns=1_000_000,
                )
                for index in range(steps)
            ),
            title=f"job_rank{rank}",
        )
        for rank in range(count)
    )


@pytest.mark.parametrize(("count", "steps"), [(1024, 3), (1000, 100), (4, 3), (64, 60), (65, 61)])
def test_each_cell_is_the_largest_of_its_ranks_and_steps(count: int, steps: int) -> None:
    ranks = ranks_of(count, steps)
    grid = rank_grid(ranks)
    assert grid is not None
    assert len(grid.ranks) <= 64
    assert len(grid.steps) <= 60
    assert (grid.ranks[0][0], grid.ranks[-1][1]) == (0, count - 1)
    own = np.array([[step.own_ns for step in one.steps] for one in ranks])
    beyond = np.maximum(own - [median_low(column) for column in own.T.tolist()], 0)
    for (first_rank, last_rank), row in zip(grid.ranks, grid.cells, strict=True):
        for (first_step, last_step), cell in zip(grid.steps, row, strict=True):
            part = beyond[first_rank : last_rank + 1, first_step : last_step + 1]
            assert cell is not None
            assert cell.beyond_ns == part.max()
            assert beyond[cell.rank, cell.step] == cell.beyond_ns


def test_what_is_not_known_of_a_rank_is_no_zero() -> None:
    one, other = ranks_of(2, 2)
    grid = rank_grid((one, msgspec.structs.replace(other, steps=other.steps[:1])))
    assert grid is not None
    assert [[cell is None for cell in row] for row in grid.cells] == [[False, False], [False, True]]
    assert rank_grid([RankFigures(rank=0)]) is None


def test_of_a_thousand_ranks_the_outliers_come_first(training_analysis: Analysis) -> None:
    ranks = RanksAnalysis(
        world_size=1026,
        ranks=ranks_of(1024, 3),
        missing=(1024, 1025),
        matched=5,
        collectives=5,
        disagreements=(RankDisagreement(about="steps", sentence="rank 5 differs", ranks=(5,)),),
    )
    analysis = msgspec.structs.replace(training_analysis, ranks=ranks)
    blocks = SECTION.body(analysis)
    spread, table = (block for block in blocks if isinstance(block, Table))
    assert [row[0] for row in table.rows[:2]] == ["5", str(LATE)]
    assert len(table.rows) == 20
    own = [row for row in spread.rows if row[0] == "By itself"]
    assert own[0][-1] == str(LATE)
    said = [block.text for block in blocks if isinstance(block, Paragraph)]
    assert any(text.startswith(f"And {formatting.count(1004)} more.") for text in said)
    assert any(text.startswith("Ranks 1024 and 1025 of the job are not here.") for text in said)

    (heat,) = (block for block in blocks if isinstance(block, HeatMap))
    drawn = make_heat_map(heat)
    darkest = [cell.text for cell in drawn.cells if cell.shade == "9"]
    assert darkest
    assert all(text.startswith(f"rank {LATE}, step ") for text in darkest)
    page = render_html(analysis)
    assert len(page.encode()) < 6_000_000
    assert all(text in page for text in darkest)
