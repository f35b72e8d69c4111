"""The gate against itself: made-up processes whose noise is known, and recorded A/A processes."""

import gzip
import random
from pathlib import Path

import msgspec
import pytest

from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.selftest import Rate, neighbours, selftest
from gpuprof.roofline.gate.series import NoiseCalibration
from gpuprof.roofline.gate.suite import MeasuredProcess, Rules

RECORDINGS = sorted((Path(__file__).parents[1] / "data" / "gate").glob("*.json*"))
RULES = Rules(RuleSettings())


def made_up(count: int, noise: float, *, drift: float = 0.0) -> list[MeasuredProcess]:
    """Processes of one target with two benchmarks, with so much noise from one to the next."""
    normal = random.Random(4)
    processes = []
    for index in range(count):
        measurements = {}
        for name, time in (("t/quick", 1e6), ("t/slow", 5e7)):
            level = time * (1 + normal.gauss(0, noise)) * (1 + drift * index)
            samples = tuple(round(level * (1 + normal.gauss(0, 0.001))) for _ in range(20))
            measurements[name] = Measurement(samples_ns=samples, signature="k")
        processes.append(
            MeasuredProcess(target="t", side="A", pair=index, first=True, measurements=measurements)
        )
    return processes


def test_quiet_processes_raise_no_alarm_and_a_change_is_found_in_the_first_pairs() -> None:
    found = selftest(made_up(30, 0.005), RULES, gates=40, effect=0.05)

    assert found.false_alarms == Rate(0, 40)
    assert found.found == Rate(40, 40)
    assert found.processes == 30
    assert found.cost < 1.5
    assert [row.benchmark for row in found.benchmarks] == ["t/quick", "t/slow"]
    # One benchmark is made slower at a time, in turn.
    assert [row.found.gates for row in found.benchmarks] == [20, 20]
    quick = found.benchmarks[0]
    assert quick.pair_sd == pytest.approx(0.005 * 2**0.5, rel=0.4)
    assert quick.smallest_detectable is not None
    assert quick.smallest_detectable < 0.05


def test_a_change_below_the_minimum_effect_is_never_found() -> None:
    assert selftest(made_up(30, 0.002), RULES, gates=20, effect=0.008).found == Rate(0, 20)


def test_a_steady_drift_falls_on_both_sides_alike() -> None:
    # 1 % a process: all of one side after all of the other would differ by 15 %.
    found = selftest(made_up(31, 0.002, drift=0.01), RULES, gates=40, effect=0.05)

    assert found.false_alarms == Rate(0, 40)


def test_a_calibration_counts() -> None:
    known = NoiseCalibration(variance=0.3**2, degrees=100)
    rules = Rules(RuleSettings(), calibrations={("t/quick", "time"): known})

    found = selftest(made_up(30, 0.005), rules, gates=20, effect=0.05)

    assert found.calibrated == 1
    # With such noise behind it nobody believes 5 %; the other benchmark has none.
    assert [row.found.hits for row in found.benchmarks] == [0, 10]


def test_the_same_seed_draws_the_same_gates() -> None:
    processes = made_up(16, 0.02)

    first, again, other = (
        selftest(processes, RULES, gates=6, effect=0.05, seed=seed) for seed in (1, 1, 2)
    )

    assert first == again
    assert first != other


def test_too_few_processes_and_failed_ones_are_refused() -> None:
    with pytest.raises(ValueError, match="t has 10 processes; a gate needs at least 11"):
        selftest(made_up(10, 0.01), RULES, gates=1, effect=0.05)
    with pytest.raises(ValueError, match="there are no processes"):
        selftest([], RULES, gates=1, effect=0.05)
    failed = msgspec.structs.replace(made_up(1, 0.01)[0], failure="it exited with 1")
    with pytest.raises(ValueError, match="a process of t failed: it exited with 1"):
        selftest([failed], RULES, gates=1, effect=0.05)


def test_neighbours_ran_after_each_other_and_none_is_used_twice() -> None:
    assert neighbours(6, 0) == [(0, 1), (2, 3), (4, 5)]
    assert neighbours(6, 1) == [(1, 2), (3, 4)]


def test_a_rate_has_its_exact_interval() -> None:
    # The rule of three: nothing in 300 leaves less than about 1.2 % on both sides' 95 %.
    assert Rate(0, 300).interval == pytest.approx((0.0, 0.01222), abs=1e-4)
    assert Rate(5, 10).interval == pytest.approx((0.187, 0.813), abs=1e-3)
    assert Rate(0, 0).share is None
    assert Rate(0, 0).interval == (0.0, 1.0)


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.name.partition(".")[0])
def test_recorded_processes_of_the_same_code_raise_no_more_alarms_than_promised(
    file: Path,
) -> None:
    processes = recorded(file)

    found = selftest(processes, RULES, gates=60, effect=1.0)

    # The interval of what was seen holds what was promised: at most 1 suite of 100.
    assert found.false_alarms.interval[0] <= RULES.settings.alpha
    # Twice the time is found even in the worst noise recorded, more often than not.
    assert found.found.hits > 30


@pytest.mark.parametrize("machine", ["cpu_2_cores", "h100"])
def test_of_each_machine_there_are_at_least_60_processes(machine: str) -> None:
    of_it = [file for file in RECORDINGS if file.name.startswith(machine)]
    assert sum(len(recorded(file)) for file in of_it) >= 60


def test_on_an_h100_five_percent_are_found() -> None:
    (file,) = [file for file in RECORDINGS if file.name == "h100.json.gz"]

    found = selftest(recorded(file), RULES, gates=100, effect=0.05)

    assert found.false_alarms.hits == 0
    assert found.found.hits >= 85
    # Its products were timed while the clock still fell to the power limit: the noise is told.
    noise = {row.benchmark: row.pair_sd for row in found.benchmarks}
    assert max(noise, key=lambda name: noise[name] or 0) == "matmul"


def recorded(file: Path) -> list[MeasuredProcess]:
    """The processes of one recording, in the order in which they ran."""
    content = file.read_bytes()
    if file.suffix == ".gz":
        content = gzip.decompress(content)
    return msgspec.json.decode(content, type=list[MeasuredProcess])
