"""The statistics of comparing two programs by pairs of processes.

The unit is a process, not a sample: samples of one process share its addresses, its clocks and its
choice of kernels, so more of them say nothing about the next process. Differences are of
logarithms, so a mean difference m is a change by the factor exp(m).

All functions take arrays of any shape (a suite, or many simulated suites) and broadcast.
"""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special, stats

Array = npt.NDArray[np.float64]
Numbers = float | Sequence[float] | Array
# Identical differences have no spread of their own; 0 would make every test infinite.
_LEAST_SD = 1e-9


class Evidence(NamedTuple):
    """What the differences of one series of pairs say: arrays of one shape."""

    pairs: Array
    mean: Array
    # Of one difference.
    sd: Array
    # Of the t distribution that `mean` is compared with.
    degrees: Array

    @property
    def standard_error(self) -> Array:
        """Of the mean."""
        return np.asarray(self.sd / np.sqrt(self.pairs))


def evidence(
    differences: Numbers,
    calibrated_variance: Numbers = 0.0,
    calibrated_degrees: Numbers = 0.0,
) -> Evidence:
    """Mean and calibrated spread of `differences` along their last axis; NaN marks a missing pair.

    The variance is max(pooled, current): pooled with what earlier A/A pairs showed, with their
    degrees of freedom, but never less than these pairs show themselves, so that a calibration
    from quieter days does not raise alarms. Needs two pairs.
    """
    values = np.asarray(differences, dtype=np.float64)
    present = ~np.isnan(values)
    pairs = present.sum(axis=-1).astype(np.float64)
    filled = np.where(present, values, 0.0)
    mean = filled.sum(axis=-1) / pairs
    squares = np.where(present, values - mean[..., None], 0.0) ** 2
    current = squares.sum(axis=-1) / (pairs - 1)
    degrees = np.asarray(np.add(calibrated_degrees, pairs - 1))
    pooled = (np.multiply(calibrated_degrees, calibrated_variance) + squares.sum(-1)) / degrees
    sd = np.sqrt(np.maximum(pooled, current))
    return Evidence(pairs, mean, np.maximum(sd, _LEAST_SD), degrees)


def p_above(found: Evidence, null: Numbers) -> Array:
    """The chance of a mean as large as this or larger, if the true one were `null`."""
    return np.asarray(
        stats.t.sf(np.subtract(found.mean, null) / found.standard_error, found.degrees)
    )


def p_below(found: Evidence, null: Numbers) -> Array:
    """The chance of a mean as small as this or smaller, if the true one were `null`."""
    return np.asarray(
        stats.t.cdf(np.subtract(found.mean, null) / found.standard_error, found.degrees)
    )


def rejected(p_values: Numbers, alpha: float) -> npt.NDArray[np.bool_]:
    """Which hypotheses along the last axis Benjamini and Hochberg reject at the rate `alpha`.

    Where no null hypothesis is false, any is rejected in at most `alpha` of all suites.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    if p_values.shape[-1] == 0:
        return np.zeros(p_values.shape, dtype=np.bool_)
    return np.asarray(stats.false_discovery_control(p_values, axis=-1) <= alpha)


def interval(found: Evidence, confidence: float = 0.95) -> tuple[Array, Array]:
    """Both ends of the interval for the mean, of this series alone (not corrected for others)."""
    half = stats.t.ppf((1 + confidence) / 2, found.degrees) * found.standard_error
    return np.asarray(found.mean - half), np.asarray(found.mean + half)


def smallest_detectable(
    found: Evidence, null: Numbers, alpha: Numbers, power: float = 0.95
) -> Array:
    """The smallest true mean that a test at `alpha` against `null` finds with chance `power`.

    Exact for normal differences of this spread: the noncentral t distribution. For one hypothesis
    among m at the suite's rate a, `alpha` is a / m.
    """
    critical = stats.t.isf(alpha, found.degrees)
    noncentrality = special.nctdtrinc(found.degrees, 1 - power, critical)
    return np.asarray(np.add(null, noncentrality * found.standard_error))


def pairs_needed(
    effect: float,
    sd: float,
    null: float,
    alpha: float,
    *,
    calibrated_degrees: int = 0,
    power: float = 0.95,
    most: int = 2000,
) -> int | None:
    """Pairs after which a true mean difference `effect` is found with chance `power`.

    `sd` is of one pair's difference. None where `effect` is not above `null`, which no number of
    pairs can show, or more than `most` would be needed.
    """
    if effect <= null:
        return None

    def enough(pairs: int) -> bool:
        count = np.asarray(float(pairs))
        trial = Evidence(count, np.zeros(()), np.asarray(sd), count - 1 + calibrated_degrees)
        return bool(smallest_detectable(trial, null, alpha, power) <= effect)

    if not enough(most):
        return None
    # More pairs always show more; a noncentral t takes long, so few numbers of pairs are tried.
    return bisect.bisect_left(range(most), True, lo=2, key=enough)
