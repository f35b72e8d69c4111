"""The rank test against scipy's, and what it costs to import."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from gpuprof.roofline.rank_test import rank_test


@pytest.mark.parametrize(
    "sizes", [(1, 1), (1, 9), (5, 15), (8, 8), (8, 30), (9, 9), (9, 3), (40, 70)]
)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("shift", [0.0, 0.8, -3.0])
def test_it_is_scipys(sizes: tuple[int, int], ties: bool, shift: float) -> None:
    generator = np.random.default_rng(sum(sizes))
    for _ in range(5):
        first, second = (generator.normal(size=size) for size in sizes)
        if ties:
            first, second = first.round(), second.round()
        second = second + shift

        wanted = stats.mannwhitneyu(first, second).pvalue

        assert rank_test(first.tolist(), second.tolist()) == pytest.approx(wanted, rel=1e-9)
        assert rank_test(second.tolist(), first.tolist()) == pytest.approx(wanted, rel=1e-9)


def test_values_that_are_all_equal_are_of_one_distribution() -> None:
    assert rank_test([3.0] * 9, [3.0] * 12) == 1.0


def test_an_analysis_does_not_import_scipy() -> None:
    code = (
        "import sys; from gpuprof.roofline import analyze; "
        "from gpuprof.roofline.steps.settling import unsettled; "
        "assert unsettled([10] * 5 + [20, 21, 22, 23, 24] * 3); "
        "print([name for name in sys.modules if name.startswith('scipy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
