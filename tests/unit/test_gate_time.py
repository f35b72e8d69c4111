"""A gate's wall time: its limit, what it says of what is open, and the estimate of the rest."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate import engine, pace
from gpuprof.profiler.gate.engine import GatePlan, run_gate
from gpuprof.profiler.gate.rules import time_span_s
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.reports.formatting import rough_time
from gpuprof.reports.gate.sentences import headline
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.result import GateResult
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import MeasuredProcess, Rules

LOOKS = (5, 10, 20)
# A change of 3 % on average in a noise of 4 %: suspicious for as long as anybody looks.
CHANGES = (0.09, -0.01, 0.05, -0.02, 0.04)


@dataclass
class Machine:
    """A clock that stands still except while a process runs, and processes of `seconds` each."""

    seconds: float = 10.0
    changes: tuple[float, ...] = CHANGES
    now_s: float = 0.0

    def measure(
        self, program: SideProgram, target: Target, *, pair: int, first: bool, **_: Any
    ) -> tuple[MeasuredProcess, Fingerprint]:
        self.now_s += self.seconds
        change = self.changes[pair % len(self.changes)] if program.side == "B" else 0.0
        sample = round(1e6 * (1 + change))
        measured = {target.name: Measurement(samples_ns=(sample,) * 5)}
        process = MeasuredProcess(
            target=target.name, side=program.side, pair=pair, first=first, measurements=measured
        )
        return process, Fingerprint()


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(
        machine: Machine, limit_s: float | None, names: tuple[str, ...] = ("one",)
    ) -> tuple[GateResult, list[str]]:
        monkeypatch.setattr(engine, "measure_process", machine.measure)
        monkeypatch.setattr(pace, "monotonic", lambda: machine.now_s)
        targets = tuple(Target(name=name, script=f"{name}.py") for name in names)
        common: dict[str, Any] = {"folder": tmp_path, "targets": targets, "python": "python"}
        plan = GatePlan(
            base=SideProgram(side="A", label="main", **common),
            head=SideProgram(side="B", label="the head", **common),
            rules=Rules(RuleSettings(looks=LOOKS)),
            output=tmp_path,
            time_limit_s=limit_s,
        )
        told: list[str] = []
        return run_gate(plan, lambda what, done, planned: told.append(what)), told

    return run


def time_of(result: GateResult, name: str) -> Judgement:
    return next(j for j in result.judgements if (j.benchmark, j.metric.name) == (name, "time"))


def test_a_gate_without_a_limit_takes_every_look(gate: Any) -> None:
    result, _ = gate(Machine(), None)

    assert len(result.processes) == 40
    assert (time_of(result, "one").verdict, time_of(result, "one").reason) == (
        "INCONCLUSIVE",
        "suspicious",
    )


def test_what_is_open_when_the_time_is_over_is_inconclusive_and_says_what_it_detects(
    gate: Any,
) -> None:
    # Ten pairs of 20 s are measured; the pairs for the next look would take 200 s more.
    result, _ = gate(Machine(), 290.0)

    found = time_of(result, "one")
    assert len(result.processes) == 28
    assert result.seconds == 280.0
    assert (found.verdict, found.reason, found.pairs_wanted) == ("INCONCLUSIVE", "time-limit", 0)
    # The look after ten pairs was the last: four pairs more are no look.
    assert len(found.pair_changes) == 10
    assert found.smallest_detectable is not None
    assert f"10 pairs detect changes above {found.smallest_detectable:.1%}" in found.message
    assert "the next look takes 20 usable pairs, 290 s were over before" in found.message
    # It is not measured again, so it detects no more than that.
    assert found.smallest_detectable_with_rerun == found.smallest_detectable
    assert found.smallest_detectable > 0.03


def test_before_the_first_look_nothing_passes(gate: Any) -> None:
    result, _ = gate(Machine(changes=(0.0, 0.03)), 70.0)

    found = time_of(result, "one")
    assert (len(result.processes), found.pairs) == (6, 3)
    assert (found.verdict, found.reason) == ("INCONCLUSIVE", "time-limit")
    assert found.message.startswith("3 of 5 pairs are usable")


def test_a_target_that_had_no_turn_is_no_pass(gate: Any) -> None:
    result, _ = gate(Machine(), 25.0, ("one", "two"))

    found = time_of(result, "two")
    assert (found.verdict, found.reason) == ("INCONCLUSIVE", "time-limit")
    assert found.message == "not measured within 25 s"
    # Nothing failed, and nothing passed.
    assert result.exit_code == 0
    assert headline(result) == "INCONCLUSIVE: 2 benchmarks, 2 inconclusive"


def test_a_limit_that_is_not_reached_changes_no_verdict_but_what_a_pass_detects(gate: Any) -> None:
    quiet = Machine(changes=(0.0, 0.002, -0.001))
    free, _ = gate(quiet, None)
    quiet.now_s = 0.0
    ample, _ = gate(quiet, 1_000.0)
    quiet.now_s = 0.0
    short, _ = gate(quiet, 120.0)

    assert time_of(ample, "one") == time_of(free, "one")
    passed = time_of(short, "one")
    assert passed.verdict == "PASS"
    # Had it looked suspicious, there would have been no time to measure it again.
    assert passed.smallest_detectable_with_rerun == passed.smallest_detectable
    assert passed.smallest_detectable != time_of(free, "one").smallest_detectable_with_rerun


def test_the_rest_until_the_next_look_is_told_from_the_second_process_on(gate: Any) -> None:
    _, told = gate(Machine(seconds=30.0), None, ("one", "two"))

    assert told[0] == "one: pair 1 of 3, main"
    assert told[1] == "one: pair 1 of 3, the head; about 6 min to the first look"
    assert told[12] == "one: pair 4 of 5, the head; about 4 min to the first look"
    assert told[19] == "two: pair 5 of 5, the head; about 30 s to the first look"
    assert told[20] == "one: pair 6 of 10, the head; about 10 min to the next look"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90 s", 90.0), ("90s", 90.0), ("1.5 min", 90.0), ("2h", 7200.0)]
)
def test_a_time_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert time_span_s(text, "--time-limit") == seconds


@pytest.mark.parametrize("text", ["", "5", "5 ms", "0 s", "-3 s", "5 minutes", "soon", "1e999 s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match=f"--time-limit is {re.escape(repr(text))}; write"):
        time_span_s(text, "--time-limit")


def test_a_time_to_wait_is_rough() -> None:
    assert [rough_time(s) for s in (0.2, 42.4, 89, 95, 3_000, 6_000, 7_200)] == [
        *("1 s", "42 s", "89 s", "2 min", "50 min", "1 h 40 min", "2 h 0 min")
    ]
