"""Rows that agree in several numbers follow each other."""

import numpy as np
import pytest

from gpuprof.roofline.row_groups import row_groups


@pytest.mark.parametrize(
    ("first", "second", "groups"),
    [
        ([], [], []),
        ([7], [1], [[0]]),
        ([1, 0, 1, 0, 1], [5, 5, 5, 6, 4], [[1], [3], [4], [0, 2]]),
        ([2, 2, 2], [-1, -1, -1], [[0, 1, 2]]),
    ],
)
def test_equal_rows_are_one_group(
    first: list[int], second: list[int], groups: list[list[int]]
) -> None:
    order, begins = row_groups(np.array(first, np.int64), np.array(second, np.int64))
    found = [part.tolist() for part in np.split(order, begins[1:]) if len(part)]
    assert found == groups
