"""How often does the gate alarm for nothing, and what does it find?

    python benchmarks/gate_simulation.py [--suites N] [--level quiet|typical|noisy] [--rebuilds]

Made-up suites of 50 benchmarks (noise_model.py) are judged by the gate's own rule and, on the same
samples, by the rules of other tools. Printed are the share of suites with any alarm where nothing
changed, with its 95 % interval (Clopper and Pearson), the chance to find a lone regression of 2, 5
and 10 %, and the pairs measured for each benchmark. 2,000 suites take a few minutes on one core.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent))

from noise_model import LEVELS, SAMPLES, Array, Mask, Pairs, Suites, draw_suites, measure

from gpuprof.roofline.gate.rule import RuleSettings, cleared, look_at
from gpuprof.roofline.statistics import evidence

BENCHMARKS = 50
EFFECTS = (0.02, 0.05, 0.10)
# Standard deviations of the lasting shift that building the same code again brings.
REBUILDS = (0.003, 0.006, 0.010)
_AT_ONCE = 100
# Pairs of the first look that tell their kernels, as `gpuprof.profiler.gate.engine` has it.
PROFILED_PAIRS = 3
# A pair that cannot be used is measured again so often.
_ATTEMPTS = 40
_MOST_DISCARDED = RuleSettings().discarded_share


@dataclass
class Tally:
    """What one rule did."""

    suites: int = 0
    alarms: int = 0
    found: tuple[int, ...] = (0,) * len(EFFECTS)
    trials: int = 0
    pairs: float = 0.0

    def add(self, alarms: Mask, found: tuple[int, ...], trials: int, pairs: float) -> None:
        """Count suites that alarmed, regressions found, and the pairs a benchmark took."""
        self.suites += alarms.size
        self.alarms += int(alarms.sum())
        self.found = tuple(a + b for a, b in zip(self.found, found, strict=True))
        self.trials += trials
        self.pairs += pairs * trials

    def row(self, name: str) -> str:
        """One line of the table."""
        exact = stats.binomtest(self.alarms, self.suites).proportion_ci(0.95, "exact")
        power = "  ".join(f"{count / self.trials:6.1%}" for count in self.found)
        return (
            f"{name:44} {self.alarms / self.suites:7.2%}  [{exact.low:6.2%}, {exact.high:6.2%}]  "
            f"{power}  {self.pairs / self.trials:5.2f}"
        )


# -- the gate's rule ------------------------------------------------------------------------------


def differences(pairs: Pairs, *, aware: bool) -> Array:
    """B - A of the process medians, (rows, pairs); NaN where the rule does not use the pair.

    As `gpuprof.roofline.gate.series.pair_up`: without the samples that throttled, without pairs
    that lost too many, and without those whose processes ran other kernels, unless each side ran
    one choice only and the two differ.
    """
    if not aware:
        medians = np.median(pairs.samples, axis=-1)
        return np.asarray(medians[..., 1] - medians[..., 0])
    kept = (~pairs.throttling_seen).sum(axis=-1)
    ordered = np.sort(np.where(pairs.throttling_seen, np.inf, pairs.samples), axis=-1)
    low = np.take_along_axis(ordered, np.maximum(kept - 1, 0)[..., None] // 2, axis=-1)
    high = np.take_along_axis(ordered, kept[..., None] // 2, axis=-1)
    medians = ((low + high) / 2)[..., 0]
    lost = (kept < (1 - _MOST_DISCARDED) * SAMPLES).any(axis=-1)
    first, second = pairs.signature[..., 0], pairs.signature[..., 1]
    disjoint = (first.all(-1) & ~second.any(-1)) | (second.all(-1) & ~first.any(-1))
    unusable = lost | ((first != second) & ~disjoint[:, None])
    with np.errstate(invalid="ignore"):
        return np.where(unusable, np.nan, medians[..., 1] - medians[..., 0])


def vary(pairs: Pairs) -> Mask:
    """The rows whose processes picked now this kernel and now that, on one side or on both."""
    first, second = pairs.signature[..., 0], pairs.signature[..., 1]
    disjoint = (first.all(-1) & ~second.any(-1)) | (second.all(-1) & ~first.any(-1))
    return np.asarray(~disjoint & (first | second).any(-1) & ~(first & second).all(-1))


class Gate:
    """The gate on many suites at once, measuring again what it asks for."""

    def __init__(
        self,
        generator: np.random.Generator,
        suites: Suites,
        settings: RuleSettings,
        *,
        aware: bool = True,
        profiled_pairs: int = PROFILED_PAIRS,
        rebuild_sd: float | None = None,
    ) -> None:
        self.generator, self.suites, self.settings = generator, suites, settings
        self.aware, self.rebuild_sd = aware, rebuild_sd
        self.profiled_pairs = profiled_pairs

    def measure(self, rows: npt.NDArray[np.intp], pairs: int) -> tuple[Array, Array]:
        """`pairs` usable differences of each of `rows`, and how many pairs that took."""
        values = differences(measure(self.generator, self.suites, rows, pairs), aware=self.aware)
        return self.complete(rows, values)

    def complete(self, rows: npt.NDArray[np.intp], values: Array) -> tuple[Array, Array]:
        """`values` with its unusable pairs measured again, and how many pairs that took."""
        values = values.copy()
        spent = np.full(len(rows), float(values.shape[1]))
        for _ in range(_ATTEMPTS):
            short = np.flatnonzero(np.isnan(values).any(axis=1))
            if short.size == 0:
                break
            again = differences(
                measure(self.generator, self.suites, rows[short], 1), aware=self.aware
            )[:, 0]
            gaps = np.isnan(values[short]).argmax(axis=1)
            values[short, gaps] = again
            spent[short] += 1
        return values, spent

    def first_look(self, first: Pairs) -> tuple[Array, Mask]:
        """Differences of the first look's pairs, and the rows of which some did not tell kernels.

        Kernels are known of the first `profiled_pairs`. The others count, whatever they ran, until
        kernels are seen to vary: from then on every process tells its own, and they are left out.
        """
        nothing_told = first._replace(signature=np.zeros_like(first.signature))
        known = first._replace(signature=first.signature[:, : self.profiled_pairs])
        seen = vary(known) & self.aware
        values = np.where(
            seen[:, None],
            differences(first, aware=self.aware),
            differences(nothing_told, aware=self.aware),
        )
        all_told = self.profiled_pairs >= first.signature.shape[1] or not self.aware
        return values, ~seen & (not all_told)

    def calibrate(self, sessions: int) -> tuple[Array, float]:
        """Variance of a pair from `sessions` A/A sessions of the first look's pairs."""
        rows = np.arange(len(self.suites))
        pairs = self.settings.looks[0]
        squares = np.zeros(len(rows))
        for _ in range(sessions):
            values, _ = self.measure(rows, pairs)
            squares += values.var(axis=1, ddof=1) * (pairs - 1)
        degrees = sessions * (pairs - 1)
        return (squares / degrees if degrees else squares), float(degrees)

    def judge(
        self, first: Pairs, calibration: tuple[Array, float], effect: float | Array, *, alone: bool
    ) -> tuple[Mask, float]:
        """Which rows regressed, and the mean number of pairs a row took.

        `effect` slows every B, or that of each row. With `alone` each row is judged as if it were
        the only one that changed in its suite.
        """
        settings = self.settings
        variance, degrees = calibration
        rows = np.arange(len(self.suites))
        shape = (-1, 1) if alone else (-1, self.suites.benchmarks)
        share = self.suites.benchmarks if alone else 1
        values, untold = self.first_look(first)
        counts = ~np.isnan(values)
        values, spent = self.complete(rows, values)
        slower = np.broadcast_to(np.log1p(effect), len(rows))
        values = values + slower[:, None]
        regressed = np.zeros(len(rows), dtype=np.bool_)
        live = np.ones(len(rows), dtype=np.bool_)
        if settings.cleared_after:
            early = slice(0, settings.cleared_after)
            limit = float(np.log1p(settings.fail_above))
            found = evidence(values[:, early], variance, degrees)
            done = cleared(found, limit=limit, improvement=limit) & counts[:, early].all(axis=1)
            live &= ~done
            spent[done] = settings.cleared_after
        for look, alpha in enumerate(settings.alphas):
            if look:
                chosen = np.flatnonzero(live)
                more = settings.looks[look] - settings.looks[look - 1]
                more_pairs = measure(self.generator, self.suites, chosen, more)
                new, cost = self.complete(chosen, differences(more_pairs, aware=self.aware))
                spent[chosen] += cost
                void = chosen[vary(more_pairs) & untold[chosen]]
                if void.size:
                    first_pairs = slice(self.profiled_pairs, settings.looks[0])
                    again, cost = self.measure(void, settings.looks[0] - self.profiled_pairs)
                    values[void, first_pairs] = again + slower[void, None]
                    spent[void] += cost
                    untold[void] = False
                grown = np.full((len(rows), settings.looks[look]), np.nan)
                grown[:, : values.shape[1]] = values
                grown[chosen, values.shape[1] :] = new + slower[chosen, None]
                values = grown
            found = evidence(values, variance, degrees)
            decided = look_at(
                type(found)(*(part.reshape(shape) for part in found)),
                null=settings.null(self.rebuild_sd),
                limit=np.log1p(settings.fail_above),
                improvement=np.log1p(settings.fail_above),
                alpha=alpha / share,
                rerun_below=settings.rerun_below,
                tested=live.reshape(shape),
            )
            regressed |= decided.regressed.reshape(-1) & live
            live = decided.suspicious.reshape(-1)
        return regressed, float(spent.mean())


# -- rules of other tools, on the samples of the first look ----------------------------------------


def _pooled(first: Pairs, effect: float) -> tuple[Array, Array]:
    """All samples of each side as times, (rows, pairs x samples)."""
    rows = first.samples.shape[0]
    a, b = (np.exp(first.samples[:, :, side]).reshape(rows, -1) for side in (0, 1))
    return a, b * (1 + effect)


def _mann_whitney(a: Array, b: Array) -> Array:
    return np.asarray(stats.mannwhitneyu(a, b, axis=1, method="asymptotic").pvalue)


def asv(a: Array, b: Array) -> Mask:
    """asv continuous: Mann-Whitney p < 0.002 and medians apart by a factor of 1.1."""
    ratio = np.median(b, axis=1) / np.median(a, axis=1)
    return np.asarray((ratio > 1.1) & (_mann_whitney(a, b) < 0.002))


def google_benchmark(a: Array, b: Array) -> Mask:
    """compare.py: two-sided Mann-Whitney at 0.05; here an alarm where B is the slower."""
    slower = np.median(b, axis=1) > np.median(a, axis=1)
    return np.asarray(slower & (_mann_whitney(a, b) < 0.05))


def criterion(a: Array, b: Array) -> Mask:
    """criterion.rs: p < 0.05, and the interval of the means' ratio above 1 %.

    Its bootstrap of 100,000 means is taken as the normal distribution that it approaches.
    """
    means = a.mean(axis=1), b.mean(axis=1)
    errors = [
        x.std(axis=1, ddof=1) / np.sqrt(x.shape[1]) / mean
        for x, mean in zip((a, b), means, strict=True)
    ]
    ratio = np.log(means[1] / means[0])
    return np.asarray(ratio - 1.96 * np.hypot(*errors) > np.log(1.01))


def nvbench(a: Array, b: Array) -> Mask:
    """nvbench_compare: the means differ by more than the smaller relative deviation."""
    noise = np.minimum(*(x.std(axis=1, ddof=1) / x.mean(axis=1) for x in (a, b)))
    return np.asarray(b.mean(axis=1) / a.mean(axis=1) - 1 > noise)


def nvbench_robust(a: Array, b: Array) -> Mask:
    """compare-robust: [minimum, third quartile] of B above that of A by 0.5 %; no cycles here."""
    return np.asarray(b.min(axis=1) > 1.005 * np.quantile(a, 0.75, axis=1))


def pytest_benchmark(field: Callable[..., Array]) -> Callable[[Array, Array], Mask]:
    """--benchmark-compare-fail=FIELD:5%."""

    def rule(a: Array, b: Array) -> Mask:
        return np.asarray(field(b, axis=1) > 1.05 * field(a, axis=1))

    return rule


OTHERS: dict[str, Callable[[Array, Array], Mask]] = {
    "asv: Mann-Whitney p < 0.002, factor 1.1": asv,
    "criterion.rs: p < 0.05, noise threshold 1 %": criterion,
    "google/benchmark: Mann-Whitney p < 0.05": google_benchmark,
    "nvbench_compare: means against noise": nvbench,
    "nvbench compare-robust, without cycles": nvbench_robust,
    "pytest-benchmark: mean:5%": pytest_benchmark(np.mean),
    "pytest-benchmark: min:5%": pytest_benchmark(np.min),
}


# -- runs -----------------------------------------------------------------------------------------


class Design(NamedTuple):
    """One way to run the gate."""

    # A/A sessions of calibration.
    sessions: int = 4
    # Whether throttled samples and processes with other kernels are left out.
    aware: bool = True
    settings: RuleSettings = RuleSettings(cleared_after=PROFILED_PAIRS)
    profiled_pairs: int = PROFILED_PAIRS


GATES = {
    "gpuprof: the gate, 4 A/A sessions": Design(),
    "gpuprof: the gate, 1 A/A session": Design(sessions=1),
    "gpuprof: the gate, uncalibrated": Design(sessions=0),
    "gpuprof: the gate, blind to throttling": Design(aware=False),
    "gpuprof: nothing cleared after 3 pairs": Design(settings=RuleSettings()),
    "gpuprof: every pair profiled": Design(profiled_pairs=5, settings=RuleSettings()),
    "gpuprof: looks after 5, 15, 35 pairs": Design(settings=RuleSettings(looks=(5, 15, 35))),
    "gpuprof: one look after 5 pairs": Design(settings=RuleSettings(looks=(5,))),
}


def simulate(
    suites: int,
    level: str,
    seed: int,
    *,
    others: bool = True,
    gates: tuple[str, ...] = tuple(GATES),
) -> dict[str, Tally]:
    """Judge `suites` suites without a change, and with each benchmark slowed in turn."""
    tallies = {name: Tally() for name in (*gates, *(OTHERS if others else ()))}
    generator = np.random.default_rng(seed)
    for start in range(0, suites, _AT_ONCE):
        count = min(_AT_ONCE, suites - start)
        drawn = draw_suites(generator, count, BENCHMARKS, level)
        rows = np.arange(len(drawn))
        first = measure(generator, drawn, rows, RuleSettings().looks[0])
        for name in gates:
            design = GATES[name]
            gate = Gate(
                generator,
                drawn,
                design.settings,
                aware=design.aware,
                profiled_pairs=design.profiled_pairs,
            )
            calibration = gate.calibrate(design.sessions)
            alarms, pairs = gate.judge(first, calibration, 0.0, alone=False)
            found = tuple(
                int(gate.judge(first, calibration, effect, alone=True)[0].sum())
                for effect in EFFECTS
            )
            tallies[name].add(alarms.reshape(count, -1).any(axis=1), found, len(drawn), pairs)
        for name, rule in OTHERS.items() if others else ():
            alarms = rule(*_pooled(first, 0.0)).reshape(count, -1).any(axis=1)
            found = tuple(int(rule(*_pooled(first, effect)).sum()) for effect in EFFECTS)
            tallies[name].add(alarms, found, len(drawn), 5.0)
    return tallies


def simulate_rebuilds(suites: int, level: str, seed: int) -> dict[str, Tally]:
    """Suites whose every benchmark got a lasting shift from being built again, and no change.

    The gate knows nothing of it, or has measured its standard deviation.
    """
    tallies: dict[str, Tally] = {}
    generator = np.random.default_rng(seed)
    for start in range(0, suites, _AT_ONCE):
        count = min(_AT_ONCE, suites - start)
        drawn = draw_suites(generator, count, BENCHMARKS, level)
        first = measure(generator, drawn, np.arange(len(drawn)), RuleSettings().looks[0])
        unit = generator.standard_normal(len(drawn))
        for sd in REBUILDS:
            for known in (False, True):
                gate = Gate(generator, drawn, RuleSettings(), rebuild_sd=sd if known else None)
                calibration = gate.calibrate(4)
                alarms, pairs = gate.judge(first, calibration, sd * unit, alone=False)
                found = tuple(
                    int(gate.judge(first, calibration, effect + sd * unit, alone=True)[0].sum())
                    for effect in EFFECTS
                )
                name = f"rebuilding shifts by {sd:.1%}, {'measured' if known else 'not known'}"
                tally = tallies.setdefault(name, Tally())
                tally.add(alarms.reshape(count, -1).any(axis=1), found, len(drawn), pairs)
    return tallies


def main() -> None:
    """Simulate and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suites", type=int, default=2000)
    parser.add_argument("--level", choices=LEVELS, default="typical")
    parser.add_argument(
        "--rebuilds", action="store_true", help="what building the same code again does instead"
    )
    parser.add_argument("--seed", type=int, default=20261128)
    options = parser.parse_args()
    print(f"{options.suites} suites of {BENCHMARKS} benchmarks, {options.level} noise")
    print(
        f"{'rule':44} {'alarms':>7}  {'95 % interval':^16}  "
        f"{'  '.join(f'finds {effect:.0%}'.rjust(6) for effect in EFFECTS)}  pairs"
    )
    run = simulate_rebuilds if options.rebuilds else simulate
    for name, tally in run(options.suites, options.level, options.seed).items():
        print(tally.row(name))


if __name__ == "__main__":
    main()
