"""From processes to the verdicts of a suite: whose budget holds, waivers, counts, classes."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuprof.profiler.configuration.file import read_configuration
from gpuprof.profiler.gate.rules import suite_rules
from gpuprof.roofline.gate.budget import Budget
from gpuprof.roofline.gate.counters import CounterBudget
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import Side
from gpuprof.roofline.gate.suite import (
    BudgetRow,
    MeasuredProcess,
    Rules,
    Waiver,
    budgets_of,
    judge_suite,
    targets_wanting_pairs,
    unmatched,
)

TODAY = date(2026, 11, 28)


def processes(
    name: str = "train", *, slower: float = 1.0, base: Any = None, head: Any = None
) -> list[MeasuredProcess]:
    """Five pairs of one benchmark; `base` and `head` are further fields of the measurements."""
    found = []
    for pair in range(5):
        for side, factor, fields in (("A", 1.0, base), ("B", slower, head)):
            noise = 1 + 0.001 * ((pair + (side == "B")) % 3)
            measurement = Measurement(
                samples_ns=tuple(round(1e6 * factor * noise * (1 + i % 2 / 500)) for i in range(9)),
                **{"signature": "k", **(fields or {})},
            )
            chosen: Side = "A" if side == "A" else "B"
            found.append(
                MeasuredProcess(
                    target=name.partition("/")[0],
                    side=chosen,
                    pair=pair,
                    first=(side == "A") == (pair % 2 == 0),
                    measurements={name: measurement},
                )
            )
    return found


def judged(suite: list[MeasuredProcess], **rules: Any) -> dict[tuple[str, str], Judgement]:
    found = judge_suite(suite, Rules(RuleSettings(), **rules), today=TODAY)
    return {(j.benchmark, j.metric.name): j for j in found}


def test_of_matching_budgets_the_later_one_wins_metric_by_metric() -> None:
    rows = (
        BudgetRow(match="*", metrics={"time": Budget(regress=0.1), "mfu": Budget(minimum=0.3)}),
        BudgetRow(match="train*", metrics={"time": Budget(regress=0.03)}, maximum_new_kernels=0),
        BudgetRow(match="infer", class_change="error"),
    )

    found = budgets_of("train/llama", rows)

    assert found.metrics == {"time": Budget(regress=0.03), "mfu": Budget(minimum=0.3)}
    assert (found.maximum_new_kernels, found.class_change) == (0, None)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("tests/test_a.test_b[2-bf16]", True),
        ("tests/test_a.test_b*", True),
        ("tests/*[[]2-bf16]", True),
        # Brackets of a pattern are a set of letters.
        ("tests/test_a.test_b[[]3*", False),
        ("Tests/*", False),
    ],
)
def test_patterns_of_parametrised_tests(pattern: str, matches: bool) -> None:
    row = BudgetRow(match=pattern, class_change="warn")
    assert (budgets_of("tests/test_a.test_b[2-bf16]", [row]).class_change == "warn") == matches


def test_budgets_and_waivers_for_nothing_are_said() -> None:
    rules = Rules(
        RuleSettings(),
        budgets=(BudgetRow(match="trian*"), BudgetRow(match="*[2]")),
        waivers=(Waiver(match="train", reason="r", expires=TODAY),),
    )

    assert unmatched(rules, ["train", "b[2]"]) == (
        "the budget for 'trian*' matches no benchmark",
        "the budget for '*[2]' matches no benchmark",
    )
    assert unmatched(rules, ["b2", "triangle"]) == ("the waiver for 'train' matches no benchmark",)


def test_a_budget_allows_what_it_says() -> None:
    suite = processes(slower=1.04)

    allowed = judged(suite, budgets=(BudgetRow(match="*", metrics={"time": Budget(regress=0.1)}),))

    assert judged(suite)["train", "time"].verdict == "REGRESSED"
    found = allowed["train", "time"]
    assert (found.verdict, found.reason) == ("PASS", "below-budget")
    assert "within its budget of 10.0%" in found.message


def test_an_absolute_limit_holds_without_a_change() -> None:
    row = BudgetRow(match="*", metrics={"time": Budget(maximum=0.5e6)})

    found = judged(processes(), budgets=(row,))["train", "time"]

    assert (found.verdict, found.reason) == ("REGRESSED", "over-maximum")


@pytest.mark.parametrize(
    ("waiver", "fails", "said"),
    [
        (Waiver(match="train", reason="cuDNN 9", expires=TODAY), False, "waived until 2026-11-28"),
        (Waiver(match="tr*", reason="cuDNN 9", expires=TODAY, metric="time"), False, "cuDNN 9"),
        (Waiver(match="train", reason="r", expires=date(2026, 11, 27)), True, "waiver expired on"),
        (Waiver(match="train", reason="r", expires=TODAY, metric="mfu"), True, "over its limit"),
        (Waiver(match="other", reason="r", expires=TODAY), True, "over its limit"),
    ],
)
def test_a_waiver_lets_what_it_names_pass_until_its_day(
    waiver: Waiver, fails: bool, said: str
) -> None:
    found = judged(processes(slower=1.2), waivers=(waiver,))["train", "time"]

    assert (found.verdict, found.fails) == ("REGRESSED", fails)
    assert said in found.message


def test_a_waiver_says_nothing_where_nothing_fails() -> None:
    waiver = Waiver(match="*", reason="r", expires=TODAY)
    assert "waived" not in judged(processes(), waivers=(waiver,))["train", "time"].message


def test_a_count_without_a_budget_is_said_and_with_one_it_fails() -> None:
    suite = processes(base={"counters": {"launches": 4}}, head={"counters": {"launches": 5}})
    row = BudgetRow(match="*", counters={"launches": CounterBudget(level="error")})

    said, failed = judged(suite), judged(suite, budgets=(row,))

    assert said["train", "launches"].verdict == failed["train", "launches"].verdict == "REGRESSED"
    assert not said["train", "launches"].fails
    assert failed["train", "launches"].fails


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        # Of a GPU: exact.
        ({"counters": {"peak_memory": 100}}, {"counters": {"peak_memory": 100}}, "PASS"),
        ({"counters": {"peak_memory": 100}}, {"counters": {"peak_memory": 103}}, "REGRESSED"),
        ({"counters": {"peak_memory": 2000}}, {"counters": {"peak_memory": 2000}}, "REGRESSED"),
        ({"counters": {"peak_memory": 100}}, {}, "ERROR"),
        # Of a CPU: a figure.
        ({"figures": {"peak_memory": 100}}, {"figures": {"peak_memory": 100}}, "PASS"),
        ({"figures": {"peak_memory": 100}}, {"figures": {"peak_memory": 103}}, "REGRESSED"),
        ({"figures": {"peak_memory": 2000}}, {"figures": {"peak_memory": 2000}}, "REGRESSED"),
        ({}, {}, "ERROR"),
    ],
)
def test_peak_memory_has_one_verdict_on_a_gpu_and_on_a_cpu(
    base: Any, head: Any, verdict: str, tmp_path: Path
) -> None:
    file = tmp_path / "gpuprof.toml"
    file.write_text('[[budget]]\npeak_memory = { regress = "1%", max = 1000 }\n')
    rules = suite_rules(read_configuration(file), str(file))

    found = judge_suite(processes(base=base, head=head), rules, today=TODAY)

    memory = [j for j in found if j.metric.name == "peak_memory"]
    assert [(j.verdict, j.fails) for j in memory] == [(verdict, verdict != "PASS")]


@pytest.mark.parametrize("kind", ["counters", "figures"])
@pytest.mark.parametrize(("head", "verdict"), [(101, "PASS"), (103, "REGRESSED")])
def test_peak_memory_with_a_maximum_alone_may_grow_as_everything_may(
    kind: str, head: int, verdict: str, tmp_path: Path
) -> None:
    file = tmp_path / "gpuprof.toml"
    file.write_text("[[budget]]\npeak_memory = { max = 1000 }\n")
    rules = suite_rules(read_configuration(file), str(file))
    base, changed = ({kind: {"peak_memory": value}} for value in (100, head))

    found = judge_suite(processes(base=base, head=changed), rules, today=TODAY)

    memory = [j for j in found if j.metric.name == "peak_memory"]
    assert [(j.verdict, j.fails) for j in memory] == [(verdict, verdict != "PASS")]


def test_new_kernels_fail_where_none_are_allowed() -> None:
    suite = processes(base={"kernels": {"a": 1}}, head={"kernels": {"a": 1, "b": 1}})

    said = judged(suite)["train", "kernel names"]
    failed = judged(suite, budgets=(BudgetRow(match="*", maximum_new_kernels=0),))
    allowed = judged(suite, budgets=(BudgetRow(match="*", maximum_new_kernels=1),))

    assert (said.verdict, said.level) == ("CHANGED-KERNEL", "warn")
    assert failed["train", "kernel names"].fails
    assert not allowed["train", "kernel names"].fails


def test_another_bottleneck_is_said_and_fails_where_a_budget_forbids_it() -> None:
    suite = processes(base={"bottleneck": "compute"}, head={"bottleneck": "launch"})
    row = BudgetRow(match="*", class_change="error")

    said = judged(suite)["train", "bottleneck"]
    failed = judged(suite, budgets=(row,))["train", "bottleneck"]

    assert said.message == "the largest loss of the step was compute and is launch"
    assert (said.verdict, failed.verdict, failed.fails) == ("PASS", "REGRESSED", True)


def test_a_benchmark_that_only_the_head_has_is_not_gated() -> None:
    suite = [p for p in processes("tests/new") if p.side == "B"]

    found = judged(suite)["tests/new", "time"]

    assert (found.verdict, found.reason) == ("PASS", "new")


def test_a_benchmark_that_the_head_lost_does_not_pass() -> None:
    suite = [p for p in processes("tests/old") if p.side == "A"]

    found = judged(suite)["tests/old", "time"]

    assert (found.verdict, found.reason, found.fails) == ("ERROR", "missing-metric", True)


def test_times_of_zero_do_not_pass() -> None:
    found = judged(processes(slower=0.0))["train", "time"]
    assert (found.verdict, found.reason) == ("ERROR", "bad-sample")


def test_no_samples_do_not_pass() -> None:
    suite = [
        MeasuredProcess(
            target=p.target,
            side=p.side,
            pair=p.pair,
            first=p.first,
            measurements={"train": Measurement(samples_ns=())},
        )
        for p in processes()
    ]
    assert judged(suite)["train", "time"].verdict == "ERROR"


def test_pairs_are_wanted_of_the_target_that_holds_the_benchmark() -> None:
    few = [p for p in processes("tests/test_a.test_b") if p.pair < 3]

    assert targets_wanting_pairs(few, judged(few).values()) == {"tests": 2}
    assert targets_wanting_pairs(processes(), judged(processes()).values()) == {}


def test_pass_in_much_noise_names_what_would_be_seen_and_the_pairs_that_would_do() -> None:
    suite = [
        MeasuredProcess(
            target="train",
            side=p.side,
            pair=p.pair,
            first=p.first,
            measurements={"train": Measurement(samples_ns=(noise,) * 20)},
        )
        for p, noise in zip(
            processes(), (1000, 1300, 1000, 800, 1000, 1010, 1000, 1200, 1000, 750), strict=True
        )
    ]

    noisy, quiet = judged(suite)["train", "time"], judged(processes())["train", "time"]

    assert noisy.verdict == "PASS"
    (warning,) = noisy.warnings
    assert warning.startswith("this noise hides changes up to ")
    assert warning.endswith("] in [gate] shows 10.0%")
    assert quiet.warnings == ()
