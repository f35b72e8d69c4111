"""How often `gpuprof gate results` fails a change, by the number of repeats and their noise.

Made-up serving runs: one shift a run that all metrics share (Student's t with 6 degrees of
freedom), and half of it of each latency's own. Prints the share of 400 suites that regressed, and
of those that stayed INCONCLUSIVE, without a change and with every metric worse by 5 and 10 %.
"""

import math
from datetime import date
from itertools import product

import numpy as np

from gpuprof.collectors.benchmark_results.run import BenchmarkRun, ReportedBenchmark
from gpuprof.roofline.gate.reported import compared, judge_reported
from gpuprof.roofline.gate.reported_metrics import JUDGED, REPORTED_METRICS
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import Rules

SUITES = 400
SEED = 7
# Of a serving benchmark.
METRICS = [name for name in JUDGED if not name.endswith("time")]
# Repeats on each side, and the looks at them.
DESIGNS = ((5, RuleSettings().looks), (5, (5,)), (10, RuleSettings().looks), (10, (10,)))


def runs(rng: np.random.Generator, count: int, sd: float, worse: float) -> tuple[BenchmarkRun, ...]:
    """`count` runs with metrics of 1, or worse by the fraction `worse`."""
    found = []
    for index in range(count):
        shift = float(rng.standard_t(6)) * sd
        figures = {}
        for name in METRICS:
            slower = math.exp(shift + float(rng.normal()) * sd / 2) * (1 + worse)
            lower_is_better = REPORTED_METRICS[name].better == "lower"
            figures[name] = slower if lower_is_better else 1 / slower
        found.append(
            BenchmarkRun(
                tool="vllm", place=str(index), benchmarks=(ReportedBenchmark(figures=figures),)
            )
        )
    return tuple(found)


def main() -> None:
    rng = np.random.default_rng(SEED)
    print("repeats  looks             sd  worse  REGRESSED  INCONCLUSIVE")
    for (count, looks), sd, worse in product(DESIGNS, (0.01, 0.02), (0.0, 0.05, 0.10)):
        rules = Rules(RuleSettings(looks=looks))
        regressed = undecided = 0
        for _ in range(SUITES):
            pair = compared(runs(rng, count, sd, 0.0), runs(rng, count, sd, worse))
            verdicts = {j.verdict for j in judge_reported(pair, rules, today=date.today())}
            regressed += "REGRESSED" in verdicts
            undecided += "REGRESSED" not in verdicts and "INCONCLUSIVE" in verdicts
        print(
            f"{count:7}  {looks!s:15}  {sd:3.0%}  {worse:5.0%}  {regressed / SUITES:9.1%}  "
            f"{undecided / SUITES:12.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
