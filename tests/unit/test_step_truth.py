"""Over all our captures: a split adds up and obeys physics."""

from pathlib import Path

import pytest
from recordings import REFUSED, analyses
from split_physics import check_physics

DATA = Path(__file__).parents[1] / "data"
OWN = (
    *sorted((DATA / "captures").iterdir()),
    *(path for path in sorted((DATA / "kineto").iterdir()) if path.name not in REFUSED),
    *sorted((DATA / "nsys").glob("*.sqlite.gz")),
)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_every_split_of_our_captures_adds_up_and_check_physics(path: Path) -> None:
    for analysis in analyses(path):
        check_physics(analysis)
