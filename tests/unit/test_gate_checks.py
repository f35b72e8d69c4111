"""What a dry run finds: scripts, modules, budgets, waivers, places and baselines that are wrong."""

import dataclasses
import sys
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprof.collectors.live.fingerprint import collect_fingerprint
from gpuprof.collectors.manifest import Device
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.checks import (
    check_baseline,
    check_bench,
    check_files,
    check_interpreter,
    check_rules,
)
from gpuprof.profiler.gate.engine import StoredSide
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.roofline.gate.patterns import could_match
from gpuprof.roofline.gate.result import SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import BudgetRow, Rules, Waiver

TRAIN = Target(script="train.py")
TESTS = Target(pytest=("tests/speed/test_a.py::test_b",))


def side(folder: Path, *targets: Target, **more: Any) -> SideProgram:
    common: dict[str, Any] = {"side": "B", "label": "the working tree", "python": sys.executable}
    return SideProgram(folder=folder, targets=targets, **{**common, **more})


def test_a_script_that_is_not_there_is_a_problem_and_one_that_the_commit_lacks_is_new(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        (folder / "tests" / "speed").mkdir(parents=True)
    (new / "train.py").touch()
    (new / "tests/speed/test_a.py").touch()
    head = side(new, TRAIN, TESTS)
    commit = side(old, TRAIN, TESTS, label="main", commit="abc")
    command = dataclasses.replace(commit, commit=None)

    against_commit = check_files(commit, head)
    against_command = check_files(command, head)
    nothing = check_files(commit, side(old, TRAIN))

    absent = (
        "main: there is no train.py (target train)",
        "main: there is no tests/speed/test_a.py (target tests)",
    )
    assert against_commit.problems == ()
    assert against_commit.remarks == tuple(f"{said}: new, and not gated" for said in absent)
    assert against_command.problems == absent
    assert nothing.problems == ("the working tree: there is no train.py (target train)",)
    assert check_files(side(new, TRAIN, TESTS, commit="abc"), head).remarks == ()


def test_budgets_that_match_nothing_and_waivers_that_are_over_are_said() -> None:
    day = date(2026, 11, 28)
    rules = Rules(
        RuleSettings(),
        budgets=(BudgetRow(match="trian"), BudgetRow(match="tests/*"), BudgetRow(match="*")),
        waivers=(
            Waiver(match="train", reason="a", expires=date(2026, 11, 27)),
            Waiver(match="tests/test_a.test_b[3]", reason="b", expires=day),
            Waiver(match="infer/*", reason="c", expires=day),
        ),
    )

    found = check_rules(rules, (TRAIN, TESTS), day)

    assert found.problems == ()
    assert found.remarks == (
        "the budget for 'trian' matches no target",
        "the waiver for 'infer/*' matches no target",
        "the waiver for 'train' expired on 2026-11-27",
    )


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        *(("tests/a", True), ("tests/a[3]", True), ("tests/*", True), ("t*", True), ("*x", True)),
        *(("tests", True), ("test?/a", True), ("[st]ests/a", True), ("", False)),
        *(("test/a", False), ("testsuite/*", False), ("train*", False), ("a/tests", False)),
    ],
)
def test_a_pattern_fits_what_a_target_may_hold(pattern: str, matches: bool) -> None:
    assert could_match(pattern, "tests", several=True) is matches


def test_modules_that_an_interpreter_lacks_are_named_and_those_of_the_folder_are_found(
    tmp_path: Path,
) -> None:
    (tmp_path / "lib" / "mine").mkdir(parents=True)
    (tmp_path / "lib" / "mine" / "train.py").touch()
    targets = (Target(module="mine.train"), Target(module="mine.tarin"), Target(module="no.such"))
    program = side(tmp_path, *targets, python_path=(tmp_path / "lib",))

    assert check_interpreter(program).problems == tuple(
        f"the working tree: {sys.executable} finds no module {name}"
        for name in ("mine.tarin", "no.such")
    )


def test_an_interpreter_that_does_not_start_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no license >&2\nexit 7\n")
    broken.chmod(0o755)

    (said,) = check_interpreter(side(tmp_path, TRAIN, python=str(broken))).problems
    (none,) = check_interpreter(side(tmp_path, TRAIN, python=str(tmp_path / "x"))).problems

    assert said == f"the working tree: {broken} exits with 7: no license"
    assert none.endswith("x cannot be started: No such file or directory")


def test_a_baseline_of_another_machine_is_not_comparable_whatever_a_program_sets(
    tmp_path: Path,
) -> None:
    here = collect_fingerprint()
    program_sets: dict[str, Any] = {"torch_threads": 77, "float32_matmul_precision": "medium"}
    gpu = Device(index=0, kind="cuda", name="H100", total_memory_bytes=85, multiprocessors=132)

    def stored(**facts: Any) -> StoredSide:
        found = {"train": msgspec.structs.replace(here, **facts)}
        return StoredSide(info=SideInfo(label="v1"), processes=(), fingerprints=found)

    facts: dict[str, Any] = {"devices": (gpu,), "torch": "1.0", **program_sets}
    said = "\n".join(check_baseline(stored(**facts), side(tmp_path, TRAIN)).problems)

    assert "train: not comparable: device name: H100 against" in said
    assert "train: not comparable: torch: 1.0 against" in said
    assert "threads" not in said
    assert "precision" not in said


def test_a_reference_kernel_that_there_is_not_is_named() -> None:
    targets = (Target(bench=("gem",)), TRAIN, Target(name="fine", bench=("gemm", "softmax")))

    (said,) = check_bench(targets).problems

    assert said.startswith("bench: no family 'gem': did you mean gemm?")
