"""The gate's statistics against closed forms, scipy's own tests and simulation."""

import numpy as np
import pytest
from scipy import stats

from gpuprof.roofline.statistics import (
    Evidence,
    evidence,
    interval,
    p_above,
    p_below,
    pairs_needed,
    rejected,
    smallest_detectable,
)


def test_uncalibrated_p_value_is_that_of_the_one_sample_t_test() -> None:
    differences = [0.03, 0.05, 0.02, 0.04, 0.06]

    p = p_above(evidence(differences), 0.01)

    expected = stats.ttest_1samp(differences, 0.01, alternative="greater").pvalue
    assert float(p) == pytest.approx(expected)


def test_both_sides_of_the_test_add_up_to_one() -> None:
    found = evidence([0.03, 0.05, 0.02])

    assert float(p_above(found, 0.04) + p_below(found, 0.04)) == pytest.approx(1)


def test_interval_is_that_of_the_t_distribution() -> None:
    differences = [0.03, 0.05, 0.02, 0.04, 0.06]

    low, high = interval(evidence(differences))

    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (float(low), float(high)) == pytest.approx((expected.low, expected.high))


def test_calibration_is_pooled_with_the_pairs_own_spread() -> None:
    differences = [-0.01, 0.01, 0.0]  # variance 1e-4, 2 degrees of freedom

    found = evidence(differences, 4e-4, 8)

    assert float(found.degrees) == 10
    assert float(found.sd) == pytest.approx(np.sqrt((8 * 4e-4 + 2 * 1e-4) / 10))


def test_calibration_from_a_quieter_day_does_not_make_the_spread_smaller() -> None:
    differences = [-0.01, 0.01, 0.0]

    found = evidence(differences, 1e-8, 100)

    assert float(found.sd) == pytest.approx(0.01)


def test_missing_pairs_are_left_out() -> None:
    found = evidence([[0.01, np.nan, 0.03], [0.01, 0.02, 0.03]])

    assert found.pairs.tolist() == [2, 3]
    assert found.mean.tolist() == pytest.approx([0.02, 0.02])


def test_identical_differences_give_finite_p_values() -> None:
    found = evidence([0.05] * 5)

    assert float(p_above(found, 0.01)) < 1e-6
    assert float(p_above(found, 0.06)) > 1 - 1e-6


def test_a_suite_rejects_only_p_values_small_for_its_size() -> None:
    assert rejected([0.004, 0.5, 0.9], 0.01).tolist() == [False, False, False]
    assert rejected([0.003, 0.5, 0.9], 0.01).tolist() == [True, False, False]
    # Two small ones are enough at twice the rate each.
    assert rejected([0.006, 0.0066, 0.9], 0.01).tolist() == [True, True, False]
    assert rejected([], 0.01).tolist() == []


def test_smallest_detectable_change_is_found_with_the_stated_power() -> None:
    generator = np.random.default_rng(7)
    null, alpha, sd, pairs = 0.01, 0.001, 0.02, 8
    known = Evidence(*(np.asarray(float(v)) for v in (pairs, 0, sd, pairs - 1)))
    effect = float(smallest_detectable(known, null, alpha, 0.95))

    trials = evidence(generator.normal(effect, sd, (20_000, pairs)))
    found = np.mean(p_above(trials, null) <= alpha)

    assert found == pytest.approx(0.95, abs=0.005)


def test_pairs_needed_is_the_least_number_that_detects_the_effect() -> None:
    needed = pairs_needed(0.05, 0.02, 0.01, 1e-4)

    assert needed is not None

    def detectable(pairs: int) -> float:
        known = Evidence(*(np.asarray(float(v)) for v in (pairs, 0, 0.02, pairs - 1)))
        return float(smallest_detectable(known, 0.01, 1e-4))

    assert detectable(needed) <= 0.05 < detectable(needed - 1)


def test_no_number_of_pairs_shows_an_effect_within_the_null() -> None:
    assert pairs_needed(0.01, 0.02, 0.01, 1e-4) is None
    assert pairs_needed(0.0101, 0.5, 0.01, 1e-4) is None
