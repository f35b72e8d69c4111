"""Verdicts of the gate on made-up processes."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuprof.roofline.gate.budget import Budget
from gpuprof.roofline.gate.judge import judge
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import (
    Metric,
    NoiseCalibration,
    ProcessRun,
    Series,
    Side,
    calibrate,
)

CASES = Path(__file__).parents[3] / "shared" / "cases"
MFU = Metric(name="mfu", unit="", better="higher")


def runs(
    side: Side, values: list[float], *, signatures: Sequence[str] = "", samples: int = 20
) -> tuple[ProcessRun, ...]:
    """One process for each value, whose samples lie around it."""
    return tuple(
        ProcessRun(
            side=side,
            pair=pair,
            samples=tuple(value * (1 + 0.001 * (i % 3 - 1)) for i in range(samples)),
            signature=signatures[pair] if signatures else "",
        )
        for pair, value in enumerate(values)
    )


def series(base: list[float], head: list[float], name: str = "gemm", **fields: Any) -> Series:
    return Series(benchmark=name, runs=(*runs("A", base), *runs("B", head)), **fields)


def noisy(factor: float, pairs: int, sd: float, seed: int = 1) -> tuple[list[float], list[float]]:
    generator = np.random.default_rng(seed)
    base = 1e6 * np.exp(generator.normal(0, sd, pairs))
    head = 1e6 * factor * np.exp(generator.normal(0, sd, pairs))
    return base.tolist(), head.tolist()


def verdict(one: Series, **options: Any) -> Judgement:
    return judge([one], **options)[0]


def test_a_clear_slowdown_regresses_and_asks_for_no_more_pairs() -> None:
    found = verdict(series(*noisy(1.10, 5, 0.002)))

    assert (found.verdict, found.reason, found.pairs_wanted) == ("REGRESSED", "slower", 0)
    assert found.fails
    assert found.change == pytest.approx(0.10, abs=0.005)
    assert found.interval is not None
    low, high = found.interval
    assert low < 0.10 < high


def test_the_same_code_passes_after_the_first_look() -> None:
    found = verdict(series(*noisy(1.0, 5, 0.005)))

    assert (found.verdict, found.reason, found.pairs_wanted) == ("PASS", "no-change", 0)
    assert found.smallest_detectable is not None
    assert found.smallest_detectable > 0.01


def test_a_clear_speed_up_is_reported_and_does_not_fail() -> None:
    found = verdict(series(*noisy(0.90, 5, 0.002)))

    assert (found.verdict, found.reason) == ("IMPROVED", "faster")
    assert not found.fails


def test_less_of_a_rate_is_worse() -> None:
    base, head = noisy(0.90, 5, 0.002)

    found = verdict(series(base, head, metric=MFU))
    other_way = verdict(series(head, base, metric=MFU))

    assert found.verdict == "REGRESSED"
    assert found.change == pytest.approx(-0.10, abs=0.005)
    assert other_way.verdict == "IMPROVED"


def test_suspicion_asks_for_pairs_up_to_the_next_look() -> None:
    base = [1e6] * 5
    head = [1.08e6, 1.01e6, 1.06e6, 0.99e6, 1.05e6]

    found = verdict(series(base, head))

    assert (found.verdict, found.reason, found.pairs_wanted) == ("INCONCLUSIVE", "suspicious", 5)
    assert verdict(series(base, head), give_up=True).pairs_wanted == 0


def test_more_pairs_settle_a_suspicion() -> None:
    first = verdict(series(*noisy(1.05, 5, 0.025, seed=3)))
    then = verdict(series(*noisy(1.05, 35, 0.025, seed=3)))

    assert first.verdict == "INCONCLUSIVE"
    assert first.pairs_wanted == 5
    assert (then.verdict, then.pairs) == ("REGRESSED", 35)


def test_pairs_beyond_a_look_are_not_used_before_the_next() -> None:
    base, head = noisy(1.0, 9, 0.01)

    found = verdict(series(base, head))

    assert found.pair_changes == verdict(series(base[:5], head[:5])).pair_changes


def test_a_larger_suite_needs_stronger_evidence() -> None:
    suspect = series(*noisy(1.03, 5, 0.004, seed=5))
    quiet = [series(*noisy(1.0, 5, 0.004, seed=9 + i), name=f"b{i}") for i in range(200)]

    assert judge([suspect])[0].verdict == "REGRESSED"
    assert judge([suspect, *quiet])[0].verdict == "INCONCLUSIVE"


def test_a_change_within_its_budget_passes() -> None:
    found = verdict(series(*noisy(1.03, 5, 0.001), budget=Budget(regress=0.05)))

    assert (found.verdict, found.reason) == ("PASS", "below-budget")
    assert verdict(series(*noisy(1.03, 5, 0.001))).verdict == "REGRESSED"


def test_a_budget_of_level_warn_does_not_fail() -> None:
    found = verdict(series(*noisy(1.10, 5, 0.001), budget=Budget(level="warn")))

    assert found.verdict == "REGRESSED"
    assert not found.fails


def test_absolute_limits_hold_whatever_the_base_was() -> None:
    base, head = noisy(1.0, 5, 0.001)

    over = verdict(series(base, head, budget=Budget(maximum=0.95e6)))
    under = verdict(series(base, head, metric=MFU, budget=Budget(minimum=1.05e6)))
    fine = verdict(series(base, head, budget=Budget(maximum=1.05e6, minimum=0.95e6)))

    assert (over.verdict, over.reason) == ("REGRESSED", "over-maximum")
    assert (under.verdict, under.reason) == ("REGRESSED", "under-minimum")
    assert fine.verdict == "PASS"


def test_a_new_benchmark_is_not_gated_but_keeps_its_absolute_limit() -> None:
    new = Series(benchmark="new", runs=runs("B", [7.0, 7.01, 6.99, 7.0, 7.02]))
    limited = Series(benchmark="new", runs=new.runs, budget=Budget(maximum=6.5))

    assert (verdict(new).verdict, verdict(new).reason) == ("PASS", "new")
    assert (verdict(limited).verdict, verdict(limited).reason) == ("REGRESSED", "over-maximum")


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_a_sample_that_is_no_time_is_an_error(value: float) -> None:
    broken = ProcessRun(side="B", pair=5, samples=(1e6, value))
    one = series(*noisy(1.0, 5, 0.001))

    found = verdict(Series(benchmark="gemm", runs=(*one.runs, broken)))

    assert (found.verdict, found.reason) == ("ERROR", "bad-sample")
    assert found.fails


def test_a_sample_that_was_discarded_may_be_anything() -> None:
    base, head = noisy(1.0, 5, 0.001)
    odd = [
        ProcessRun(side=r.side, pair=r.pair, samples=(math.nan, *r.samples), discarded=(0,))
        for r in series(base, head).runs
    ]

    assert verdict(Series(benchmark="gemm", runs=tuple(odd))).verdict == "PASS"


def test_a_failed_process_is_an_error() -> None:
    one = series(*noisy(1.0, 5, 0.001))
    crashed = ProcessRun(side="B", pair=5, failure="exit code 139")

    found = verdict(Series(benchmark="gemm", runs=(*one.runs, crashed)))

    assert (found.verdict, found.reason) == ("ERROR", "crashed")
    assert "139" in found.message


def test_a_process_that_crashed_is_no_other_environment() -> None:
    """One that ends before it imports torch has none to compare."""
    crashed = ProcessRun(side="B", pair=0, failure="exit code 1")
    found = verdict(
        Series(benchmark="gemm", runs=(crashed,), incomparable=("torch: 2.13.0 against not set",))
    )
    assert (found.verdict, found.reason) == ("ERROR", "crashed")


def test_a_difference_of_machines_is_named_and_nothing_is_compared() -> None:
    found = verdict(series(*noisy(1.5, 5, 0.001), incomparable=("driver 550.54 against 570.86",)))

    assert found.verdict == "INCOMPARABLE"
    assert "driver 550.54 against 570.86" in found.message
    assert found.change is None


def test_pairs_that_lost_too_many_samples_are_measured_again() -> None:
    one = series(*noisy(1.0, 5, 0.001))
    throttled = [
        ProcessRun(side=r.side, pair=r.pair, samples=r.samples, discarded=tuple(range(11)))
        if (r.side, r.pair) == ("B", 2)
        else r
        for r in one.runs
    ]

    found = verdict(Series(benchmark="gemm", runs=tuple(throttled)))

    assert (found.pairs, found.pairs_wanted) == (4, 1)
    assert found.verdict == "INCONCLUSIVE"


def test_a_choice_of_kernels_that_varies_is_not_taken_for_a_regression() -> None:
    base = runs("A", [1e6] * 10, signatures="xxxxxxxxxx")
    head = runs("B", [1e6] * 5 + [1.2e6, 1.21e6, 1.2e6, 1.19e6, 1.2e6], signatures="xxxxxyyyyy")

    found = verdict(Series(benchmark="gemm", runs=(*base, *head)))

    assert (found.verdict, found.reason) == ("CHANGED-KERNEL", "kernels-vary")
    assert found.change == pytest.approx(0, abs=1e-6)
    assert not found.fails


def test_kernels_that_the_change_itself_brought_are_compared() -> None:
    base = runs("A", [1e6, 1.001e6, 0.999e6, 1e6, 1.002e6], signatures="xxxxx")
    head = runs("B", [1.1e6, 1.102e6, 1.1e6, 1.099e6, 1.1e6], signatures="yyyyy")

    found = verdict(Series(benchmark="gemm", runs=(*base, *head)))

    assert found.verdict == "REGRESSED"
    assert found.kernels_changed


def test_a_process_whose_kernels_nobody_saw_may_have_run_any() -> None:
    base = runs("A", [1e6, 1.001e6, 0.999e6, 1e6, 1.002e6], signatures=["x", "", "", "", ""])
    head = runs("B", [1.1e6, 1.102e6, 1.1e6, 1.099e6, 1.1e6], signatures=["y", "", "", "", ""])

    found = verdict(Series(benchmark="gemm", runs=(*base, *head)))

    assert (found.verdict, found.pairs) == ("REGRESSED", 5)
    assert found.kernels_changed


def test_where_kernels_vary_a_process_that_does_not_tell_its_own_does_not_count() -> None:
    base = runs("A", [1e6] * 7, signatures=["x", "x", "x", "x", "x", "", ""])
    head = runs("B", [1e6] * 5 + [1.3e6] * 2, signatures=["x", "x", "x", "y", "x", "", ""])

    found = verdict(Series(benchmark="gemm", runs=(*base, *head)))

    assert (found.pairs, found.change) == (4, pytest.approx(0, abs=1e-9))
    # One of other kernels, and two that nobody knows of.
    assert "2 are incomplete or lost too many samples" in found.message
    assert found.pairs_wanted == 1


def test_too_few_pairs_of_the_same_kernels_are_no_pass() -> None:
    base = runs("A", [1e6] * 5, signatures="xxxxx")
    head = runs("B", [1e6] * 5, signatures="xyyyy")

    found = verdict(Series(benchmark="gemm", runs=(*base, *head)), give_up=True)

    assert found.verdict == "CHANGED-KERNEL"


def test_calibration_makes_few_pairs_decide() -> None:
    base, head = noisy(1.06, 5, 0.012, seed=2)
    known = NoiseCalibration(variance=2 * 0.012**2, degrees=40)

    assert verdict(series(base, head)).verdict == "INCONCLUSIVE"
    assert verdict(series(base, head, calibration=known)).verdict == "REGRESSED"


def test_a_rebuild_that_shifts_times_widens_what_counts_as_no_change() -> None:
    base, head = noisy(1.03, 35, 0.002)
    shifting = NoiseCalibration(variance=1e-5, degrees=20, rebuild_sd=0.012)

    found = verdict(series(base, head, calibration=shifting))

    assert found.verdict == "PASS"
    assert found.minimum_effect == pytest.approx(0.036)


def test_a_budget_below_the_noise_warns_with_the_pairs_that_would_do() -> None:
    base, head = noisy(1.0, 5, 0.03)

    found = verdict(series(base, head, budget=Budget(regress=0.015)))

    assert found.verdict == "INCONCLUSIVE"
    assert re.search(r"; pairs = \[\d+\] in \[gate\] shows 1.5%$", found.warnings[0])
    assert verdict(series(base, head)).warnings == ()


def test_a_budget_that_the_noise_allows_has_no_warning() -> None:
    found = verdict(series(*noisy(1.0, 5, 0.004), budget=Budget(regress=0.05)))

    assert (found.verdict, found.warnings) == ("PASS", ())


def test_a_budget_below_the_minimum_effect_can_not_be_held() -> None:
    found = verdict(series(*noisy(1.0, 5, 0.0001), budget=Budget(regress=0.005)))

    assert "two builds of the same code" in found.warnings[0]


def test_what_all_looks_detect_is_less_than_what_the_first_detects() -> None:
    found = verdict(series(*noisy(1.0, 5, 0.02)))

    assert found.smallest_detectable is not None
    assert found.smallest_detectable_with_rerun is not None
    assert 0.01 < found.smallest_detectable_with_rerun < found.smallest_detectable


def test_calibrate_pools_the_spread_within_sessions() -> None:
    found = calibrate([[0.01, 0.03], [-0.05, -0.03, -0.04]])

    # Deviations from each session's own mean: 0.01 twice, 0.01 twice and 0.
    assert found.degrees == 3
    assert found.variance == pytest.approx(4e-4 / 3)
    with pytest.raises(ValueError, match="two A/A pairs"):
        calibrate([[0.01]])


def test_rebuild_shift_is_what_the_spread_of_pairs_does_not_explain() -> None:
    session = [-0.001, 0.001]

    assert calibrate([session], [0.02, -0.02]).rebuild_sd == pytest.approx(0.02, rel=0.01)
    assert calibrate([session], [0.0001, -0.0001]).rebuild_sd == 0


def test_case_gate_nan() -> None:
    case = CASES / "gate-nan"
    if not case.exists():
        pytest.skip(f"{case} is not here")
    base, head = (
        json.loads((case / f"{name}.json").read_text())["metrics"]
        for name in ("baseline", "current")
    )

    def processes(side: Side, metric: dict[str, float] | None) -> tuple[ProcessRun, ...]:
        if metric is None:
            return ()
        # The case gives one median a side; every process is made to show it, 0.1 % apart.
        return tuple(
            ProcessRun(
                side=side,
                pair=pair,
                samples=(metric["median"] * (1 + 1e-3 * (pair % 2)),) * int(metric["n"]),
            )
            for pair in range(5)
        )

    names = sorted(base.keys() | head.keys())
    found = judge(
        [
            Series(
                benchmark=name,
                runs=(*processes("A", base.get(name)), *processes("B", head.get(name))),
                budget=Budget(regress=0.05),
            )
            for name in names
        ]
    )

    verdicts = {j.benchmark: (j.verdict, j.reason) for j in found}
    assert verdicts == {
        "attn_us": ("PASS", "below-budget"),
        "gemm_us": ("ERROR", "no-data"),
        "new_us": ("PASS", "new"),
        "old_us": ("ERROR", "missing-metric"),
    }
    assert any(j.fails for j in found)


@pytest.mark.parametrize("looks", [(), (1, 5), (5, 5), (15, 5)])
def test_settings_refuse_looks_that_do_not_rise_from_two(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="looks"):
        RuleSettings(looks=looks)


@pytest.mark.parametrize("looks", [(5,), (5, 15), (5, 15, 35), (5, 10, 20, 40)])
def test_the_error_rate_is_shared_over_the_looks(looks: tuple[int, ...]) -> None:
    assert sum(RuleSettings(looks=looks).alphas) == pytest.approx(0.01)
