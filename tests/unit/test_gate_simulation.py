"""The gate's error rates on made-up noise, small and with a fixed seed.

benchmarks/gate_simulation.py does the same with 2,000 suites; docs/gate_rule.md quotes it.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
import pytest

from gpuprof.roofline.gate.judge import judge
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import ProcessRun, Series, Side, pair_up

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def simulation() -> Iterator[ModuleType]:
    """benchmarks/gate_simulation.py as a module."""
    path = list(sys.path)
    spec = importlib.util.spec_from_file_location(
        "gate_simulation", BENCHMARKS / "gate_simulation.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name], sys.modules["noise_model"]
    sys.path[:] = path


def test_the_gate_keeps_quiet_and_finds_five_per_cent(simulation: ModuleType) -> None:
    (gate,) = simulation.simulate(
        100, "typical", seed=1, gates=("gpuprof: the gate, 4 A/A sessions",), others=False
    ).values()

    two, five, ten = (found / gate.trials for found in gate.found)
    assert gate.alarms == 0
    assert five >= 0.95
    assert ten >= 0.99
    # A change that is barely above what counts as none is mostly left alone.
    assert two < 0.3
    assert gate.pairs / gate.trials <= 1.1 * 5


def test_rules_that_take_samples_for_the_unit_alarm_for_nothing(simulation: ModuleType) -> None:
    rules = simulation.simulate(40, "typical", seed=1, gates=())

    alarms = {name.split(":")[0]: tally.alarms / tally.suites for name, tally in rules.items()}
    assert alarms["google/benchmark"] == 1
    assert alarms["criterion.rs"] > 0.5
    assert rules["pytest-benchmark: mean:5%"].alarms > 0


def test_the_simulation_uses_the_pairs_that_the_gate_uses(simulation: ModuleType) -> None:
    generator = np.random.default_rng(3)
    suites = simulation.draw_suites(generator, 1, 40, "typical")
    pairs = simulation.measure(generator, suites, np.arange(40), 5)

    differences = simulation.differences(pairs, aware=True)

    assert np.isnan(differences).any()
    for row in range(40):
        usable = pair_up(series(row, pairs), discarded_share=RuleSettings().discarded_share)
        values = differences[row][~np.isnan(differences[row])]
        assert values.tolist() == pytest.approx(usable.differences("lower"))


def test_the_simulation_leaves_out_what_the_gate_does_where_three_pairs_tell_their_kernels(
    simulation: ModuleType,
) -> None:
    generator = np.random.default_rng(5)
    suites = simulation.draw_suites(generator, 1, 200, "typical")
    pairs = simulation.measure(generator, suites, np.arange(200), 5)
    values, untold = simulation.Gate(generator, suites, RuleSettings()).first_look(pairs)

    assert 0 < (~untold).sum() < pairs.signature.any((1, 2)).sum()
    for row in range(200):
        runs = series(row, pairs).runs
        if untold[row]:
            runs = tuple(
                msgspec.structs.replace(run, signature=run.signature if run.pair < 3 else "")
                for run in runs
            )
        usable = pair_up(
            Series(benchmark="b", runs=runs), discarded_share=RuleSettings().discarded_share
        )
        known = values[row][~np.isnan(values[row])]
        assert known.tolist() == pytest.approx(usable.differences("lower"))


def test_the_simulation_decides_as_the_gate_does(simulation: ModuleType) -> None:
    generator = np.random.default_rng(4)
    settings = RuleSettings(looks=(5,))
    suites = simulation.draw_suites(generator, 1, simulation.BENCHMARKS, "quiet")
    rows = np.arange(len(suites))
    pairs = simulation.measure(generator, suites, rows, 5)
    pairs.samples[::5, :, 1] += 0.2
    pairs = pairs._replace(
        throttling_seen=np.zeros_like(pairs.throttling_seen),
        signature=np.zeros_like(pairs.signature),
    )

    regressed, _ = simulation.Gate(generator, suites, settings, aware=False).judge(
        pairs, (np.zeros(len(suites)), 0.0), 0.0, alone=False
    )
    judged = judge([series(row, pairs) for row in rows], settings)

    assert 0 < regressed.sum() < len(suites)
    assert [j.verdict == "REGRESSED" for j in judged] == regressed.tolist()


def series(row: int, pairs: object) -> Series:
    """One benchmark of the simulation as the gate gets it."""
    samples, throttling, signature = pairs  # type: ignore[misc]
    sides: tuple[tuple[int, Side], ...] = ((0, "A"), (1, "B"))
    return Series(
        benchmark=f"b{row}",
        runs=tuple(
            ProcessRun(
                side=name,
                pair=pair,
                samples=tuple(np.exp(samples[row, pair, side]).tolist()),
                discarded=tuple(np.flatnonzero(throttling[row, pair, side]).tolist()),
                signature=str(signature[row, pair, side]),
            )
            for pair in range(samples.shape[1])
            for side, name in sides
        ),
    )
