"""The gate tested on itself: recorded processes of one program, paired anew into many gates.

Nothing differs between the two sides of such a gate, so whatever it raises is a false alarm; with
the samples of one side multiplied, whatever it does not raise is a miss. A gate is drawn as it
would have been measured: pairs of processes that ran after each other, AB and BA in turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import msgspec
import numpy as np
from scipy import stats

from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.series import TIME, Side
from gpuprof.roofline.gate.suite import MeasuredProcess, Rules, judge_suite, targets_wanting_pairs

# Indices of the process that is A and of the one that is B.
Pair = tuple[int, int]
# Waivers do not matter here, so neither does the day.
_DAY = date.min


class Rate(msgspec.Struct, frozen=True):
    """How many of so many gates did something."""

    hits: int
    gates: int

    @property
    def share(self) -> float | None:
        """None without any gate."""
        return self.hits / self.gates if self.gates else None

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's exact 95 % interval: of gates drawn from the same processes."""
        if not self.gates:
            return 0.0, 1.0
        found = stats.binomtest(self.hits, self.gates).proportion_ci(0.95, "exact")
        return float(found.low), float(found.high)


class BenchmarkTest(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates said of the time of one benchmark."""

    benchmark: str
    # Nothing had changed, and it was called slower.
    false_alarms: Rate
    # It alone was slower, and was called so.
    found: Rate
    # Medians over the gates where nothing had changed: standard deviation of a pair's log
    # difference, and the least slow-down that the gate says it detects, as a fraction.
    pair_sd: float | None
    smallest_detectable: float | None


class SelfTest(msgspec.Struct, frozen=True, kw_only=True):
    """Error rates of the gate on the recorded processes."""

    # The fewest processes of a target.
    processes: int
    effect: float
    # Gates in which anything regressed though nothing had changed.
    false_alarms: Rate
    # Gates with one benchmark made slower, each in its turn, that caught it.
    found: Rate
    # Gates without a change that ended undecided.
    undecided: Rate
    # Pairs measured over those of the first look, where nothing had changed: the cost.
    cost: float
    # Benchmarks that had a calibration.
    calibrated: int
    benchmarks: tuple[BenchmarkTest, ...]


def selftest(
    processes: Sequence[MeasuredProcess],
    rules: Rules,
    *,
    gates: int,
    effect: float,
    seed: int = 0,
) -> SelfTest:
    """Judge `gates` gates without a change and `gates` with one benchmark slower by `effect`.

    `processes` all ran the same code; those of a target are in the order in which they ran. Their
    sides do not matter. Raises `ValueError` where a target has too few for the first look, or a
    process failed.
    """
    recorded = _by_target(processes, rules)
    names = list(dict.fromkeys(n for p in processes for n in p.measurements))
    random = np.random.default_rng(seed)
    clean, slowed = [], []
    for index in range(gates):
        drawn = {target: _draw(len(own), random) for target, own in recorded.items()}
        clean.append(_gate(recorded, drawn, rules))
        slower = names[index % len(names)]
        slowed.append((slower, _gate(recorded, drawn, rules, slower=slower, effect=effect)))
    return SelfTest(
        processes=min(map(len, recorded.values())),
        effect=effect,
        false_alarms=_rate([any(map(_regressed, gate.judgements)) for gate in clean]),
        found=_rate([_regressed(gate.times[name]) for name, gate in slowed]),
        undecided=_rate([any(map(_undecided, gate.judgements)) for gate in clean]),
        cost=float(np.mean([gate.cost for gate in clean])),
        calibrated=sum((name, TIME.name) in rules.calibrations for name in names),
        benchmarks=tuple(
            BenchmarkTest(
                benchmark=name,
                false_alarms=_rate([_regressed(gate.times[name]) for gate in clean]),
                found=_rate([_regressed(gate.times[name]) for own, gate in slowed if own == name]),
                pair_sd=_median([gate.times[name].pair_sd for gate in clean]),
                smallest_detectable=_median(
                    [gate.times[name].smallest_detectable_with_rerun for gate in clean]
                ),
            )
            for name in names
        ),
    )


def neighbours(count: int, first: int) -> list[Pair]:
    """Pairs of processes that ran after each other, from the one at `first` on."""
    return [(index, index + 1) for index in range(first, count - 1, 2)]


@dataclass(frozen=True)
class _Gate:
    judgements: tuple[Judgement, ...]
    # Pairs measured over those of the first look.
    cost: float

    @property
    def times(self) -> Mapping[str, Judgement]:
        return {j.benchmark: j for j in self.judgements if j.metric == TIME}


def _by_target(
    processes: Sequence[MeasuredProcess], rules: Rules
) -> dict[str, list[MeasuredProcess]]:
    found: dict[str, list[MeasuredProcess]] = {}
    for process in processes:
        if process.failure:
            raise ValueError(f"a process of {process.target} failed: {process.failure}")
        found.setdefault(process.target, []).append(process)
    # One more than its pairs need: drawing leaves the first out half of the time.
    least = 2 * rules.settings.looks[0] + 1
    for target, own in found.items():
        if len(own) < least:
            raise ValueError(f"{target} has {len(own)} processes; a gate needs at least {least}")
    if not found:
        raise ValueError("there are no processes")
    return found


def _draw(count: int, random: np.random.Generator) -> list[Pair]:
    """All pairs of neighbours in a random order; every second one the other way round."""
    pairs = neighbours(count, int(random.integers(2)))
    order = random.permutation(len(pairs))
    turned = int(random.integers(2))
    return [
        pairs[index][::-1] if (position + turned) % 2 else pairs[index]
        for position, index in enumerate(order)
    ]


def _gate(
    recorded: Mapping[str, list[MeasuredProcess]],
    drawn: Mapping[str, list[Pair]],
    rules: Rules,
    *,
    slower: str = "",
    effect: float = 0.0,
) -> _Gate:
    """Look as often as the gate does, with as many pairs as were drawn."""
    first = rules.settings.looks[0]
    counts = {target: min(first, len(pairs)) for target, pairs in drawn.items()}
    # Pairs of each benchmark: after the first look only those that are not decided get more.
    measured = {
        name: counts[target]
        for target, own in recorded.items()
        for process in own
        for name in process.measurements
    }
    while True:
        used = [
            _as_side(recorded[target][index], side, pair, measured, slower, effect)
            for target, pairs in drawn.items()
            for pair, indices in enumerate(pairs[: counts[target]])
            for side, index in _sides(indices)
        ]
        judgements = judge_suite(used, rules, today=_DAY)
        undecided = {j.benchmark for j in judgements if j.pairs_wanted > 0}
        more = {
            target: min(counts[target] + wanted, len(drawn[target]))
            for target, wanted in targets_wanting_pairs(used, judgements).items()
        }
        if all(counts[target] == count for target, count in more.items()):
            return _Gate(judgements, sum(measured.values()) / (first * len(measured)))
        counts.update(more)
        for target in more:
            for name in recorded[target][0].measurements.keys() & undecided:
                measured[name] = counts[target]


def _sides(indices: Pair) -> tuple[tuple[Side, int], tuple[Side, int]]:
    return ("A", indices[0]), ("B", indices[1])


def _as_side(
    process: MeasuredProcess,
    side: Side,
    pair: int,
    measured: Mapping[str, int],
    slower: str,
    effect: float,
) -> MeasuredProcess:
    return msgspec.structs.replace(
        process,
        side=side,
        pair=pair,
        measurements={
            name: _slowed(found, effect) if side == "B" and name == slower else found
            for name, found in process.measurements.items()
            if pair < measured[name]
        },
    )


def _slowed(measured: Measurement, effect: float) -> Measurement:
    slow = tuple(round(sample * (1 + effect)) for sample in measured.samples_ns)
    return msgspec.structs.replace(measured, samples_ns=slow)


def _regressed(judgement: Judgement) -> bool:
    return judgement.verdict == "REGRESSED"


def _undecided(judgement: Judgement) -> bool:
    return judgement.verdict == "INCONCLUSIVE" and judgement.metric == TIME


def _rate(hits: Sequence[bool]) -> Rate:
    return Rate(sum(hits), len(hits))


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
