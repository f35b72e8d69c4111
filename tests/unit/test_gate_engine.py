"""The gate's engine on made-up processes: order, looks, re-runs, and what stops it."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.cli import main
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate import engine, explaining
from gpuprof.profiler.gate.benchmarks import Benchmark
from gpuprof.profiler.gate.engine import GatePlan, run_gate
from gpuprof.profiler.gate.explaining import typical
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.gate.budget import Budget, OnInconclusive
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.result import GateResult, Place
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import Side
from gpuprof.roofline.gate.suite import BudgetRow, MeasuredProcess, Rules

CAPTURE = Path(__file__).parent.parent / "data" / "captures" / "h100_llama_block"
H100 = Device(index=0, kind="cuda", name="H100", total_memory_bytes=85, multiprocessors=132)
# What one process says: (target, side, pair) to a time in ns, None for a crash.
Times = Callable[[str, Side, int], float | None]


def steady(name: str, side: Side, pair: int) -> float | None:
    """Two benchmarks of which nothing changed, with 0.2 % of noise."""
    return 1e6 * (1 + 0.001 * ((pair + (side == "B")) % 3))


def one_kernel(name: str) -> dict[str, Any]:
    """What is told of steps that launch one kernel."""
    return {"signature": name, "kernels": {name: 2}, "counters": {"kernels": 2}}


def recorded(output: Path, target: Target) -> Iterator[Benchmark]:
    """A training step, of which the head's kernels take twice as long."""
    capture, analysis = storage.load(CAPTURE), load_analysis(CAPTURE)
    if output.name.endswith("-B"):
        slower = tuple(
            msgspec.structs.replace(kernel, device_ns=2 * kernel.device_ns)
            for kernel in analysis.kernels
        )
        analysis = msgspec.structs.replace(analysis, kernels=slower)
    # The program's only line that is known.
    optimizer = pl.col("name") == "aten::_fused_adamw_"
    ops = capture.ops.with_columns(
        file=pl.when(optimizer).then(pl.lit("train.py")),
        line=pl.when(optimizer).then(pl.lit(7, pl.Int32)),
    )
    yield Benchmark(target.name, replace(capture, ops=ops), analysis)


@dataclass
class Machine:
    """Stands in for `measure_process`."""

    times: Times = steady
    contaminated: Callable[[Side, int], bool] = lambda side, pair: False
    driver: dict[str, str] = field(default_factory=lambda: {"A": "550.54", "B": "550.54"})
    # What a profiled process tells beside its times.
    kernels: Callable[[Side, int], dict[str, Any]] = lambda side, pair: one_kernel("k")
    # Of each process: the clock that was held, or None, and the clock in the median.
    clocks: Callable[[Side, int], tuple[int | None, int | None]] = lambda side, pair: (None, None)
    # "B train 0": side, target, pair, in the order in which they ran.
    ran: list[str] = field(default_factory=list)
    # For each of them the benchmarks that were asked for; empty for all.
    only: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(
        self,
        program: SideProgram,
        target: Target,
        *,
        pair: int,
        first: bool,
        output: Path,
        only: Collection[str],
        profiled: bool,
    ) -> tuple[MeasuredProcess, Fingerprint | None]:
        self.ran.append(f"{program.side} {target.name} {pair}")
        self.only.append(tuple(only))
        (output / "target.gpuprof").mkdir(parents=True, exist_ok=True)
        time = self.times(target.name, program.side, pair)
        measured = {}
        if time is not None:
            samples = tuple(round(time * (1 + 0.0005 * (i % 3 - 1))) for i in range(20))
            told = self.kernels(program.side, pair) if profiled else {}
            held_mhz, clock_mhz = self.clocks(program.side, pair)
            measured[target.name] = Measurement(
                samples_ns=samples, sm_clock_mhz=clock_mhz, held_sm_clock_mhz=held_mhz, **told
            )
        process = MeasuredProcess(
            target=target.name,
            side=program.side,
            pair=pair,
            first=first,
            measurements=measured,
            profiled=profiled,
            failure="it exited with 1: boom" if time is None else "",
            contamination="1 other process used the GPU"
            if self.contaminated(program.side, pair)
            else "",
        )
        return process, Fingerprint(devices=(H100,), driver=self.driver[program.side])


Gate = Callable[..., GateResult]


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Runs the gate on a machine, for targets "one" and "two"."""

    def run(
        machine: Machine,
        *,
        names: tuple[str, ...] = ("one", "two"),
        budgets: tuple[BudgetRow, ...] = (),
        on_inconclusive: OnInconclusive = "warn",
        looks: tuple[int, ...] = (5, 15),
        **base: Any,
    ) -> GateResult:
        monkeypatch.setattr(engine, "measure_process", machine)
        # The machine's captures are empty folders; what stands in them is an older recording's.
        monkeypatch.setattr(explaining, "benchmarks", recorded)
        targets = tuple(Target(name=name, script=f"{name}.py") for name in names)
        common: dict[str, Any] = {"targets": targets, "python": "python"}
        return run_gate(
            GatePlan(
                base=SideProgram(
                    side="A", label="the base", **{"folder": tmp_path, **base}, **common
                ),
                head=SideProgram(side="B", label="the head", folder=tmp_path, **common),
                rules=Rules(RuleSettings(looks=looks), budgets=budgets),
                output=tmp_path,
                on_inconclusive=on_inconclusive,
            )
        )

    return run


def time_of(result: GateResult, name: str) -> Judgement:
    return next(j for j in result.judgements if (j.benchmark, j.metric.name) == (name, "time"))


def test_targets_take_turns_and_pairs_turn_around(gate: Gate) -> None:
    machine = Machine()

    result = gate(machine)

    assert machine.ran[:8] == [
        *("A one 0", "B one 0", "A two 0", "B two 0"),
        *("B one 1", "A one 1", "B two 1", "A two 1"),
    ]
    # Three pairs say that nothing changed.
    assert len(machine.ran) == 12
    assert {j.verdict for j in result.judgements} == {"PASS"}
    assert result.exit_code == 0
    assert [p.first for p in result.processes[:6]] == [True, False] * 3


def test_a_clear_regression_is_not_measured_again(gate: Gate) -> None:
    def times(name: str, side: Side, pair: int) -> float | None:
        slower = 1.2 if (name, side) == ("two", "B") else 1.0
        value = steady(name, side, pair)
        return value and value * slower

    machine = Machine(times)

    result = gate(machine)

    assert len(machine.ran) == 6 + 10
    assert (time_of(result, "one").verdict, time_of(result, "two").verdict) == ("PASS", "REGRESSED")
    assert result.exit_code == 1
    (why,) = result.explanations
    assert why.benchmark == "two"
    assert why.culprits[0].change_ns > 0
    assert {c.op: c.source for c in why.culprits}["aten::_fused_adamw_"] == Place(
        file="train.py", line=7
    )


def test_only_what_is_suspicious_is_measured_again(gate: Gate) -> None:
    def times(name: str, side: Side, pair: int) -> float | None:
        # 3 % slower on average in the first five pairs, and in none after them.
        if (name, side) == ("two", "B") and pair < 5:
            return 1e6 * (1.03 + 0.02 * (pair - 2))
        return steady(name, side, pair)

    machine = Machine(times)

    result = gate(machine)

    pairs = [sum(line.startswith(f"B {name} ") for line in machine.ran) for name in ("one", "two")]
    assert pairs == [3, 15]
    assert machine.only == [()] * 12 + [("two",)] * 24
    assert (time_of(result, "two").verdict, time_of(result, "two").pairs) == ("PASS", 15)


def test_what_got_faster_is_measured_until_it_is_shown(gate: Gate) -> None:
    def times(name: str, side: Side, pair: int) -> float | None:
        value = steady(name, side, pair)
        return value and value * (0.9 if side == "B" else 1.0)

    machine = Machine(times)

    result = gate(machine, names=("one",))

    assert (time_of(result, "one").verdict, len(machine.ran)) == ("IMPROVED", 10)


@pytest.mark.parametrize(("noise", "pairs"), [(0.0005, 3), (0.02, 5)])
def test_what_surely_did_not_change_takes_three_pairs(gate: Gate, noise: float, pairs: int) -> None:
    def times(name: str, side: Side, pair: int) -> float | None:
        return 1e6 * (1 + (noise * ((pair % 3) - 1) if side == "B" else 0.0))

    found = time_of(gate(Machine(times), names=("one",)), "one")

    assert (found.verdict, found.reason, found.pairs) == ("PASS", "no-change", pairs)


def test_a_suite_of_few_looks_clears_nothing_before_them(gate: Gate) -> None:
    machine = Machine()

    gate(machine, names=("one",), looks=(3, 6))

    assert len(machine.ran) == 6


def test_what_stays_suspicious_is_inconclusive_and_fails_where_asked(gate: Gate) -> None:
    def times(name: str, side: Side, pair: int) -> float | None:
        return 1e6 * (1.09 if side == "B" and pair % 3 == 0 else 1.0)

    warned = gate(Machine(times), names=("one",))
    failed = gate(Machine(times), names=("one",), on_inconclusive="fail")

    assert time_of(warned, "one").verdict == "INCONCLUSIVE"
    assert (warned.exit_code, failed.exit_code) == (0, 4)


def test_a_program_that_fails_is_not_run_again_while_others_are(gate: Gate) -> None:
    def times(name: str, side: Side, pair: int) -> float | None:
        return None if (name, side) == ("one", "B") else steady(name, side, pair)

    machine = Machine(times)

    result = gate(machine)

    assert [line for line in machine.ran if " one " in line] == ["A one 0", "B one 0"]
    found = time_of(result, "one")
    assert (found.verdict, found.reason) == ("ERROR", "crashed")
    assert "boom" in found.message
    assert "the change" in found.message
    assert time_of(result, "two").verdict == "PASS"
    assert result.exit_code == 5


def test_a_pair_beside_another_process_is_measured_again(gate: Gate) -> None:
    machine = Machine(contaminated=lambda side, pair: (side, pair) == ("A", 2))

    result = gate(machine, names=("one",))

    # With a pair that is lost nothing is done with before the first look.
    assert machine.ran[-2:] == ["B one 5", "A one 5"]
    assert (time_of(result, "one").verdict, time_of(result, "one").pairs) == ("PASS", 5)
    assert any("shared the GPU" in warning for warning in result.warnings)


def test_a_machine_that_is_never_free_does_not_pass_and_ends(gate: Gate) -> None:
    machine = Machine(contaminated=lambda side, pair: True)

    result = gate(machine, names=("one",))

    # Twice the first look, and not until the last one.
    assert sum(line.startswith("B one") for line in machine.ran) == 10
    found = time_of(result, "one")
    assert (found.verdict, found.reason, found.pairs_wanted) == ("ERROR", "no-data", 0)
    assert result.exit_code == 1


def test_half_of_the_pairs_may_be_lost_before_the_gate_gives_up(gate: Gate) -> None:
    def times(name: str, side: Side, pair: int) -> float | None:
        return varying(name, side, pair // 3)

    machine = Machine(times, contaminated=lambda side, pair: pair % 3 > 0)

    result = gate(machine, names=("one",))

    # Of each three pairs one counts: ten lost ones and twice as many as count are too many.
    found = time_of(result, "one")
    assert (found.verdict, found.reason) == ("INCONCLUSIVE", "suspicious")
    assert found.pairs == 7
    assert sum(line.startswith("B one") for line in machine.ran) == 20


def test_another_driver_is_incomparable_and_named(gate: Gate) -> None:
    machine = Machine(driver={"A": "550.54", "B": "570.86"})

    result = gate(machine, names=("one",))

    found = time_of(result, "one")
    assert (found.verdict, found.reason) == ("INCOMPARABLE", "environment-differs")
    assert "driver: 550.54 against 570.86" in found.message
    # More pairs could not change it.
    assert machine.ran == ["A one 0", "B one 0"]
    assert result.exit_code == 3


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ((1410, 1410), (None, 1980), "SM clock: held at 1410 MHz against not held, 1980 MHz"),
        ((None, 1980), (1410, 1410), "SM clock: not held, 1980 MHz against held at 1410 MHz"),
        ((1410, 1410), (1755, 1755), "SM clock: held at 1410 MHz against held at 1755 MHz"),
    ],
)
def test_clocks_locked_on_one_side_are_incomparable(
    gate: Gate, base: tuple[int | None, int], head: tuple[int | None, int], said: str
) -> None:
    machine = Machine(clocks=lambda side, pair: base if side == "A" else head)

    result = gate(machine, names=("one",))

    found = time_of(result, "one")
    assert (found.verdict, found.message, result.exit_code) == ("INCOMPARABLE", said, 3)
    # Three processes of each side tell it.
    assert len(machine.ran) == 6


@pytest.mark.parametrize(
    "clocks",
    [
        # Held alike, and apart by what temperature does.
        lambda side, pair: (1755, 1755) if side == "A" else (1740, 1740),
        # The head draws more power: its clock falls, and nobody set it.
        lambda side, pair: (1980, 1980) if side == "A" else (None, 1700),
        # Processes of one side do not agree.
        lambda side, pair: (1410, 1410) if side == "A" and pair else (None, 1980),
        lambda side, pair: (None, None),
    ],
)
def test_clocks_that_nobody_locked_on_one_side_alone_are_compared(
    gate: Gate, clocks: Callable[[Side, int], tuple[int | None, int | None]]
) -> None:
    assert gate(Machine(clocks=clocks), names=("one",)).exit_code == 0


def test_a_patch_release_of_the_driver_is_only_said(gate: Gate) -> None:
    result = gate(Machine(driver={"A": "550.54", "B": "550.90"}), names=("one",))

    assert result.exit_code == 0
    assert result.warnings == ("one: driver: 550.54 against 550.90",)


def test_a_budget_on_what_no_process_has_does_not_pass(gate: Gate) -> None:
    row = BudgetRow(match="one", metrics={"mfu": Budget(minimum=0.4)})

    result = gate(Machine(), names=("one",), budgets=(row,))

    found = next(j for j in result.judgements if j.metric.name == "mfu")
    assert (found.verdict, found.reason) == ("ERROR", "missing-metric")
    assert result.exit_code == 1


def test_a_script_that_the_commit_lacks_is_new_and_runs_on_one_side_alone(
    gate: Gate, tmp_path: Path
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "two.py").touch()
    machine = Machine(slower)

    result = gate(machine, commit="abc", folder=tmp_path / "old")

    assert [line for line in machine.ran if " one " in line] == [f"B one {n}" for n in range(3)]
    assert len(machine.ran) == 3 + 10
    assert (time_of(result, "one").verdict, time_of(result, "one").reason) == ("PASS", "new")
    assert time_of(result, "two").verdict == "REGRESSED"


def test_only_the_captures_of_the_first_pair_are_kept(gate: Gate, tmp_path: Path) -> None:
    gate(Machine(), names=("one",))

    kept = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.gpuprof"))
    assert kept == ["one/pair-000-A/target.gpuprof", "one/pair-000-B/target.gpuprof"]


def test_the_result_says_where_each_script_stands(gate: Gate) -> None:
    result = gate(Machine(), names=("one",))

    assert result.places == {"one": Place(file="one.py", line=1)}


def varying(name: str, side: Side, pair: int) -> float | None:
    """A change that five pairs neither show nor rule out."""
    return 1e6 * (1.09 if side == "B" and pair % 3 == 0 else 1.0)


def faster(name: str, side: Side, pair: int) -> float | None:
    """Half the time, with little noise."""
    value = steady(name, side, pair)
    return value and value * (0.5 if side == "B" else 1.0)


def slower(name: str, side: Side, pair: int) -> float | None:
    """Twice the time, with little noise."""
    value = steady(name, side, pair)
    return value and value * (2.0 if side == "B" else 1.0)


def crashing(name: str, side: Side, pair: int) -> float | None:
    """A head that does not run."""
    return None if side == "B" else 1e6


def damaged(name: str, side: Side, pair: int) -> float | None:
    """A head whose clock stands still."""
    return 0.0 if side == "B" else 1e6


@pytest.mark.parametrize(
    ("times", "settings", "verdict", "exit_code"),
    [
        (steady, "", "PASS", 0),
        (faster, "", "IMPROVED", 0),
        (slower, "", "REGRESSED", 1),
        (damaged, "", "ERROR", 1),
        (varying, "", "INCONCLUSIVE", 0),
        (varying, "on_inconclusive = 'fail'", "INCONCLUSIVE", 4),
        (crashing, "", "ERROR", 5),
    ],
)
def test_the_command_ends_with_the_code_of_its_verdict(
    times: Times,
    settings: str,
    verdict: str,
    exit_code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "measure_process", Machine(times))
    monkeypatch.setattr(explaining, "benchmarks", recorded)
    for script in ("one.py", "two.py"):
        (tmp_path / script).touch()
    (tmp_path / "gpuprof.toml").write_text(f"[gate]\npairs = [5]\n{settings}\n")

    assert main(["gate", "-a", "one.py", "-b", "two.py"]) == exit_code

    result = msgspec.json.decode(
        (tmp_path / "gpuprof-gate/gate.json").read_bytes(), type=GateResult
    )
    assert time_of(result, "command").verdict == verdict
    assert f"1 {verdict.lower()}" in capsys.readouterr().out.splitlines()[0]


def test_why_a_benchmark_changed_is_told_from_a_pair_that_changed_as_all_did() -> None:
    analysis = load_analysis(CAPTURE)
    same = compare(analysis, analysis)
    assert same.step is not None
    lengths = same.step.lengths
    changed = []
    for change in (0.02, 0.9, -0.5):
        longer = msgspec.structs.replace(lengths, head_ns=round(lengths.base_ns * (1 + change)))
        step = msgspec.structs.replace(same.step, lengths=longer)
        changed.append(msgspec.structs.replace(same, step=step))

    assert [typical(changed, change) for change in (0.1, 0.5, -0.3)] == changed


def profiled_pairs(result: GateResult, side: Side = "B") -> list[int]:
    return [p.pair for p in result.processes if p.profiled and p.side == side]


def test_three_pairs_tell_the_kernels_and_all_that_are_measured_on_suspicion(gate: Gate) -> None:
    passed = gate(Machine(), names=("one",))
    suspected = gate(Machine(varying), names=("one",))

    assert profiled_pairs(passed, "A") == profiled_pairs(passed, "B") == [0, 1, 2]
    counts = [j for j in passed.judgements if j.metric.name in ("kernels", "kernel names")]
    assert [(j.verdict, j.reason) for j in counts] == [("PASS", "no-change")] * 2
    assert profiled_pairs(suspected, "A") == [0, 1, 2, *range(5, 15)]


def test_kernels_that_vary_are_told_by_every_process_from_then_on(gate: Gate) -> None:
    def kernels(side: Side, pair: int) -> dict[str, Any]:
        return one_kernel("slow" if (side, pair) == ("B", 1) else "k")

    result = gate(Machine(kernels=kernels), names=("one",))

    # The pair of different kernels does not count, and another one is measured.
    assert profiled_pairs(result) == [0, 1, 2, 3, 4, 5]
    assert (time_of(result, "one").verdict, time_of(result, "one").pairs) == ("PASS", 5)


def test_a_budget_on_what_the_profiler_tells_has_every_pair_profiled(gate: Gate) -> None:
    row = BudgetRow(match="one", metrics={"kernel_time": Budget(regress=0.1)})

    found = gate(Machine(varying), names=("one",), budgets=(row,), looks=(5,))
    assert profiled_pairs(found) == [0, 1, 2, 3, 4]


def test_kernels_seen_to_vary_on_suspicion_void_the_pairs_that_did_not_tell_theirs(
    gate: Gate,
) -> None:
    def kernels(side: Side, pair: int) -> dict[str, Any]:
        return one_kernel("slow" if (side, pair) == ("A", 7) else "k")

    result = gate(Machine(varying, kernels=kernels), names=("one",))

    found = time_of(result, "one")
    used = [p.pair for p in result.processes if p.side == "B" and p.profiled and p.pair != 7]
    assert len(used) == found.pairs == 15
    # Two did not tell theirs, and one ran other kernels.
    assert len(result.processes) == 2 * 18
