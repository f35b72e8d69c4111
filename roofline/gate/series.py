"""What the gate measures: samples of fresh processes in pairs, and one value a process.

Side A is the base, side B the change. Pair i is one process of each, started after each other,
AB and BA in turn so that a slow drift of the machine falls on both sides alike.
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from gpuprof.roofline.gate.budget import Budget

Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")
Better = Literal["lower", "higher"]


class ProcessRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one fresh process measured of one metric."""

    side: Side
    # From 0; the two processes of a pair have the same.
    pair: int
    # Which of the two of its pair it was.
    position: Literal["first", "second"] = "first"
    # In the metric's unit (times in ns), warm-up left out. A process that has one figure in all,
    # such as a peak of memory, has one sample.
    samples: tuple[float, ...] = ()
    # Indices of samples taken while the device throttled or another process used it.
    discarded: tuple[int, ...] = ()
    # Names what ran (a hash of its kernels), so that processes that picked other kernels for the
    # same code are told apart. "" where unknown.
    signature: str = ""
    # Why the process gave no samples, in words; "" where it did.
    failure: str = ""

    @property
    def kept(self) -> tuple[float, ...]:
        """The samples that count."""
        dropped = frozenset(self.discarded)
        return tuple(v for i, v in enumerate(self.samples) if i not in dropped)

    @property
    def discarded_share(self) -> float:
        """Discarded samples over all samples; 1 where there are none."""
        return 1 - len(self.kept) / len(self.samples) if self.samples else 1.0

    @property
    def damage(self) -> str:
        """What is wrong with a sample that counts, or "": NaN, infinite, zero or negative."""
        for value in self.kept:
            if not math.isfinite(value) or value <= 0:
                return f"a sample is {value}"
        return ""

    @property
    def log_value(self) -> float:
        """Median of the logarithms of the samples that count. Needs one, and no damage."""
        return float(np.median(np.log(self.kept)))


# A benchmark and one of its metrics.
MetricKey = tuple[str, str]


class NoiseCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """How much a pair of processes of the same code differs on this machine, from A/A pairs."""

    # Of one difference of logarithms, with its degrees of freedom.
    variance: float
    degrees: int
    # Standard deviation of the lasting shift that building the same code again brings.
    rebuild_sd: float | None = None


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A positive figure that a benchmark has once or many times a process."""

    # "time", "step time", "mfu", ...: the word that a budget uses.
    name: str
    # "ns", "bytes", "bytes/s", "" for a ratio.
    unit: str
    better: Better = "lower"


TIME = Metric(name="time", unit="ns")


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one metric of one benchmark: one hypothesis of the suite."""

    benchmark: str
    metric: Metric = TIME
    runs: tuple[ProcessRun, ...]
    calibration: NoiseCalibration | None = None
    budget: Budget = Budget()
    # What makes the two sides incomparable ("driver 550.54 against 570.86"); empty where nothing.
    incomparable: tuple[str, ...] = ()

    def side(self, side: Side) -> tuple[ProcessRun, ...]:
        """The runs of one side in the order of their pairs."""
        return tuple(sorted((r for r in self.runs if r.side == side), key=lambda r: r.pair))


class Pairing(msgspec.Struct, frozen=True):
    """The pairs of a series that count, and why others do not."""

    pairs: tuple[tuple[ProcessRun, ProcessRun], ...]
    # Pairs in which a process lost too many samples, or is absent.
    unusable: int
    # Pairs of which the two processes picked kernels that differ, while both sides know both.
    mixed: tuple[tuple[ProcessRun, ProcessRun], ...]
    # Every process of A ran the same kernels, every one of B the same others.
    kernels_changed: bool

    def differences(self, better: Better, *, with_mixed: bool = False) -> tuple[float, ...]:
        """For each pair how much worse B is: positive logarithms are slower, or less of a rate."""
        chosen = (*self.pairs, *self.mixed) if with_mixed else self.pairs
        sign = 1 if better == "lower" else -1
        return tuple(sign * (b.log_value - a.log_value) for a, b in chosen)


def pair_up(series: Series, *, discarded_share: float) -> Pairing:
    """The usable pairs of an undamaged `series`.

    A process that lost more than `discarded_share` of its samples makes its pair unusable. Where a
    kernel choice that one side made also occurs on the other, choices vary from process to process
    and not by the change, so only pairs of one choice are compared; where the sides have none in
    common, the change itself brought other kernels and all pairs are. A process of which nothing
    tells the kernels may have picked any: it counts as long as no choice is seen to vary.
    """
    a_runs = {run.pair: run for run in series.side("A") if usable(run, discarded_share)}
    b_runs = {run.pair: run for run in series.side("B") if usable(run, discarded_share)}
    both = [(a_runs[pair], b_runs[pair]) for pair in a_runs if pair in b_runs]
    a_signatures = {a.signature for a, _ in both} - {""}
    b_signatures = {b.signature for _, b in both} - {""}
    shared = a_signatures & b_signatures
    varying = bool(shared) and len(a_signatures | b_signatures) > 1
    if varying:
        both = [(a, b) for a, b in both if a.signature and b.signature]

    def alike(a: ProcessRun, b: ProcessRun) -> bool:
        return not varying or a.signature == b.signature

    same = [pair for pair in both if alike(*pair)]
    return Pairing(
        pairs=tuple(same),
        unusable=len({run.pair for run in series.runs}) - len(both),
        mixed=tuple(pair for pair in both if pair not in same),
        kernels_changed=not shared and len(a_signatures) == len(b_signatures) == 1,
    )


def usable(run: ProcessRun, discarded_share: float) -> bool:
    """Whether enough of its samples were left to stand for the process."""
    return run.discarded_share <= discarded_share


def calibrate(
    sessions: Sequence[Sequence[float]], rebuilds: Sequence[float] = ()
) -> NoiseCalibration:
    """The calibration from A/A sessions: for each the differences of its pairs, as logarithms.

    `rebuilds` are the mean differences of sessions whose B was the same code built again; their
    root mean square beyond what the pairs' spread explains is the rebuild's own. Raises
    `ValueError` where no session has two pairs.
    """
    long_enough = [np.asarray(session) for session in sessions if len(session) > 1]
    degrees = sum(len(session) - 1 for session in long_enough)
    if degrees == 0:
        raise ValueError("a calibration needs a session of at least two A/A pairs")
    squares = sum(float(((s - s.mean()) ** 2).sum()) for s in long_enough)
    variance = squares / degrees
    rebuild_sd = None
    if rebuilds:
        pairs = float(np.mean([len(session) for session in long_enough]))
        beyond = float(np.mean(np.square(rebuilds))) - variance / pairs
        rebuild_sd = math.sqrt(max(0.0, beyond))
    return NoiseCalibration(variance=variance, degrees=degrees, rebuild_sd=rebuild_sd)
