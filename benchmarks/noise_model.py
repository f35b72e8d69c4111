"""Made-up suites of benchmarks, with the noise that GPU machines were reported to have.

All effects are logarithms of time and add up: a shift of each process, a part of which all
benchmarks of the process share; a linear drift and a wandering of the machine over the processes;
episodes of throttling; benchmarks that now and then run in a slower mode for a whole process;
bimodal samples, autocorrelated samples and a tail of slow ones. The ranges are those of the
project's survey of reports; they are invented, not measured.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SAMPLES = 20
# Standard deviation of a process's shift: the range that a benchmark's is drawn from.
LEVELS = {"quiet": (0.002, 0.01), "typical": (0.005, 0.03), "noisy": (0.01, 0.05)}
_THROTTLED_PROCESSES = 0.04
_THROTTLING_SEEN = 0.95
_SLOW_MODE_SEEN = 0.7


@dataclass(frozen=True)
class Suites:
    """Benchmarks of many suites, one a row; suite r // benchmarks holds row r."""

    benchmarks: int
    process_sd: Array
    sample_sd: Array
    susceptibility: Array
    spikes: Array
    # How much slower the slow mode is; 0 where a benchmark has none.
    slow_mode: Array
    # Whether the slow mode shows as another kernel.
    slow_mode_seen: Mask
    # How much slower the second kind of samples is; 0 where there is one kind.
    second_kind: Array

    def __len__(self) -> int:
        return len(self.process_sd)


class Pairs(NamedTuple):
    """Measured pairs of processes. Arrays of (rows, pairs, 2 sides), samples with one axis more."""

    # Logarithms of time.
    samples: Array
    throttling_seen: Mask
    signature: Mask


def draw_suites(generator: np.random.Generator, suites: int, benchmarks: int, level: str) -> Suites:
    """Benchmarks whose noise lies in the range of `level`."""
    rows = suites * benchmarks
    low, high = LEVELS[level]
    one_in_ten = generator.random((2, rows)) < 0.1
    return Suites(
        benchmarks=benchmarks,
        process_sd=np.exp(generator.uniform(np.log(low), np.log(high), rows)),
        sample_sd=np.exp(generator.uniform(np.log(0.002), np.log(0.015), rows)),
        susceptibility=generator.uniform(0.5, 1.5, rows),
        spikes=generator.uniform(0.005, 0.05, rows),
        slow_mode=np.where(one_in_ten[0], generator.uniform(0.03, 0.10, rows), 0.0),
        slow_mode_seen=generator.random(rows) < _SLOW_MODE_SEEN,
        second_kind=np.where(one_in_ten[1], generator.uniform(0.02, 0.05, rows), 0.0),
    )


def measure(
    generator: np.random.Generator, suites: Suites, rows: npt.NDArray[np.intp], pairs: int
) -> Pairs:
    """`pairs` pairs of processes of the benchmarks `rows`, the same code on both sides.

    They run in the order AB BA AB ... in one session of the machine.
    """
    shape = (len(rows), pairs, 2)
    suite = rows // suites.benchmarks
    everywhere = _session(generator, int(suite.max(initial=0)) + 1, pairs)[suite]
    level = everywhere * suites.susceptibility[rows, None, None]
    # Student's t with 6 degrees of freedom has variance 6 / 4.
    tails = generator.standard_t(6, shape) / np.sqrt(1.5)
    level = level + suites.process_sd[rows, None, None] * tails

    slow = (suites.slow_mode[rows, None, None] > 0) & (generator.random(shape) < 0.2)
    level = level + np.where(slow, suites.slow_mode[rows, None, None], 0.0)

    samples = level[..., None] + _sample_noise(generator, suites, rows, shape)
    throttled = generator.random(shape) < _THROTTLED_PROCESSES
    starts = generator.integers(0, SAMPLES, shape)
    lengths = generator.integers(1, SAMPLES + 1, shape)
    index = np.arange(SAMPLES)
    during = (index >= starts[..., None]) & (index < (starts + lengths)[..., None])
    during &= throttled[..., None]
    depth = generator.uniform(0.05, 0.15, shape)
    samples += np.where(during, depth[..., None], 0.0)
    seen = generator.random(shape) < _THROTTLING_SEEN
    return Pairs(
        samples=samples,
        throttling_seen=during & seen[..., None],
        signature=slow & suites.slow_mode_seen[rows, None, None],
    )


def _session(generator: np.random.Generator, suites: int, pairs: int) -> Array:
    """What the machine does to every process of a suite: (suites, pairs, 2)."""
    processes = 2 * pairs
    drift = generator.uniform(-0.015, 0.015, (suites, 1)) * np.linspace(0, 1, processes)
    wander = np.empty((suites, processes))
    wander[:, 0] = generator.normal(0, 0.003, suites)
    for process in range(1, processes):
        new = generator.normal(0, 0.003 * np.sqrt(1 - 0.8**2), suites)
        wander[:, process] = 0.8 * wander[:, process - 1] + new
    common = generator.normal(0, 0.004, (suites, processes))
    in_time = (drift + wander + common).reshape(suites, pairs, 2)
    # Every second pair runs B first.
    in_time[:, 1::2] = in_time[:, 1::2, ::-1]
    return in_time


def _sample_noise(
    generator: np.random.Generator,
    suites: Suites,
    rows: npt.NDArray[np.intp],
    shape: tuple[int, int, int],
) -> Array:
    noise = generator.standard_normal((*shape, SAMPLES))
    for sample in range(1, SAMPLES):
        noise[..., sample] *= np.sqrt(1 - 0.3**2)
        noise[..., sample] += 0.3 * noise[..., sample - 1]
    noise *= suites.sample_sd[rows, None, None, None]
    which = generator.random((*shape, SAMPLES))
    spikes = suites.spikes[rows, None, None, None]
    noise[which < spikes] += generator.exponential(0.2, int((which < spikes).sum()))
    second = (which > 0.7) & (suites.second_kind[rows, None, None, None] > 0)
    noise += np.where(second, suites.second_kind[rows, None, None, None], 0.0)
    return noise
