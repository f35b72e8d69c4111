"""The exact lane: counts compared without statistics."""

import pytest

from gpuprof.roofline.gate.counters import (
    Counter,
    CounterBudget,
    NameSet,
    as_series,
    judge_counter,
    judge_names,
)
from gpuprof.roofline.gate.judgement import Judgement

STRICT = CounterBudget(level="error")


def counter(base: tuple[int, ...], head: tuple[int, ...], **fields: object) -> Counter:
    return Counter(benchmark="train", name="launches", base=base, head=head, **fields)  # type: ignore[arg-type]


def judged(one: Counter) -> Judgement:
    return judge_counter(one, fail_above=0.02)


def test_equal_counts_pass() -> None:
    found = judged(counter((120, 120), (120, 120), budget=STRICT))

    assert (found.verdict, found.reason) == ("PASS", "no-change")


def test_one_more_launch_regresses_and_fails_only_where_a_budget_forbids_it() -> None:
    said = judged(counter((120, 120), (121, 121)))
    forbidden = judged(counter((120, 120), (121, 121), budget=STRICT))

    assert said.verdict == forbidden.verdict == "REGRESSED"
    assert not said.fails
    assert forbidden.fails
    assert "120 -> 121" in said.message


def test_fewer_launches_improve() -> None:
    assert judged(counter((120, 120), (119, 119))).verdict == "IMPROVED"


def test_a_relative_budget_allows_its_share() -> None:
    one_percent = CounterBudget(regress=0.01, level="error")

    assert judged(counter((1000, 1000), (1010, 1010), budget=one_percent)).verdict == "PASS"
    over = judged(counter((1000, 1000), (1011, 1011), budget=one_percent))
    assert over.verdict == "REGRESSED"


def test_a_maximum_holds_whatever_the_base_has() -> None:
    most = CounterBudget(maximum=100, level="error")
    least = CounterBudget(minimum=130, level="error")

    over, under, within = (
        judged(counter((120, 120), (120, 120), budget=budget))
        for budget in (most, least, CounterBudget(maximum=120, minimum=120))
    )

    assert (over.verdict, over.reason) == ("REGRESSED", "over-maximum")
    assert (under.verdict, under.reason) == ("REGRESSED", "under-minimum")
    assert within.verdict == "PASS"
    assert "120 is over its maximum of 100" in over.message


def test_a_maximum_alone_leaves_the_rest_to_the_gate_s_own_limit() -> None:
    only_most = CounterBudget(regress=None, maximum=2000, level="error")

    within = judged(counter((1000, 1000), (1020, 1020), budget=only_most))
    over = judged(counter((1000, 1000), (1021, 1021), budget=only_most))

    assert (within.verdict, within.message) == ("PASS", "1,000 -> 1,020, within its limit of 2.0%")
    assert (over.verdict, over.message) == ("REGRESSED", "1,000 -> 1,021, over its limit of 2.0%")


def test_a_count_that_steps_share_unevenly_is_said_with_its_fraction() -> None:
    found = judged(counter((1234.5, 1234.5), (1235, 1235)))  # type: ignore[arg-type]

    assert found.message == "1,234.50 -> 1,235"


def test_nothing_before_allows_nothing_after() -> None:
    generous = CounterBudget(regress=1.0, level="error")

    assert judged(counter((0, 0), (1, 1), budget=generous)).verdict == "REGRESSED"


@pytest.mark.parametrize("base", [(120, 121), (120,)])
def test_a_count_that_no_two_processes_confirm_is_demoted(base: tuple[int, ...]) -> None:
    varying = counter(base, (120, 120))

    assert judged(varying).reason == "counter-varies"
    demoted = as_series(varying)
    assert demoted is not None
    assert [run.samples for run in demoted.side("A")] == [(float(v),) for v in base]


def test_a_count_with_a_zero_has_no_ratio() -> None:
    assert as_series(counter((0, 1), (1, 1))) is None


def test_a_missing_counter_is_an_error_whatever_its_level() -> None:
    found = judged(counter((120, 120), ()))

    assert (found.verdict, found.reason) == ("ERROR", "missing-metric")
    assert found.fails
    assert judged(counter((), (120, 120))).reason == "new"


def kernels(base: dict[str, int], head: dict[str, int], maximum_new: int | None = None) -> NameSet:
    return NameSet(
        benchmark="train",
        name="kernels",
        base=(base,) * 2,
        head=(head,) * 2,
        maximum_new=maximum_new,
    )


def test_the_same_kernels_pass() -> None:
    assert judge_names(kernels({"gemm": 3}, {"gemm": 3}, 0)).verdict == "PASS"


def test_other_kernels_are_said_and_fail_only_beyond_the_allowed_number() -> None:
    said = judge_names(kernels({"gemm": 3}, {"gemm": 3, "copy": 1}))
    forbidden = judge_names(kernels({"gemm": 3}, {"gemm": 3, "copy": 1}, 0))
    allowed = judge_names(kernels({"gemm": 3}, {"gemm": 3, "copy": 1}, 1))

    assert (said.verdict, said.reason) == ("CHANGED-KERNEL", "kernels-differ")
    assert not said.fails
    assert forbidden.fails
    assert allowed.verdict == "CHANGED-KERNEL"


def test_kernels_that_vary_between_processes_are_told_apart_from_a_change() -> None:
    varying = NameSet(
        benchmark="train", name="kernels", base=({"x": 1}, {"y": 1}), head=({"x": 1}, {"x": 1})
    )

    assert judge_names(varying).reason == "kernels-vary"
