"""What A/A gates showed of the noise is kept, and used only where it holds; and planning by it."""

import math
from pathlib import Path

import msgspec
import pytest

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate import engine
from gpuprof.profiler.gate.calibration_store import (
    CalibrationStore,
    NoiseSession,
    noise_of,
    pooled,
    sessions_of,
)
from gpuprof.profiler.gate.engine import Calibrations, GatePlan, run_gate
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.planning import plan, total_seconds
from gpuprof.roofline.gate.result import GateResult
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import NoiseCalibration
from gpuprof.roofline.gate.suite import MeasuredProcess, Rules

H100 = Device(index=0, kind="cuda", name="H100", total_memory_bytes=85, multiprocessors=132)
HERE = Fingerprint(devices=(H100,), driver="550.54", torch="2.9.0")
TRAIN = Target(name="train", script="train.py")


def session(
    *values: float,
    project: Path = Path("/project"),
    target: Target = TRAIN,
    fingerprint: Fingerprint = HERE,
    created_ns: int = 1,
    rebuilt: bool = False,
) -> NoiseSession:
    return NoiseSession(
        tool_version="1",
        created_ns=created_ns,
        project=str(project),
        target=target,
        fingerprint=fingerprint,
        rebuilt=rebuilt,
        seconds=4.0,
        differences={target.name: {"time": values}},
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CalibrationStore:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return CalibrationStore(Path("/project"))


def test_sessions_are_pooled_around_their_own_means(store: CalibrationStore) -> None:
    assert store.calibrations(TRAIN, HERE) == {}

    store.add(session(0.01, 0.03))
    store.add(session(0.11, 0.12, 0.13))

    known = store.calibrations(TRAIN, HERE)["train", "time"]
    assert known.degrees == 3
    assert known.variance == pytest.approx((2 * 0.01**2 + 2 * 0.01**2) / 3)
    assert known.rebuild_sd is None


@pytest.mark.parametrize(
    "other",
    [
        {"project": Path("/elsewhere")},
        {"target": Target(name="train", script="train.py", timed=50)},
        {"fingerprint": msgspec.structs.replace(HERE, torch="2.8.0")},
        {"fingerprint": msgspec.structs.replace(HERE, environment={"NCCL_ALGO": "Ring"})},
    ],
    ids=["project", "target", "torch", "environment"],
)
def test_what_was_measured_elsewhere_is_not_used(
    store: CalibrationStore, other: dict[str, object]
) -> None:
    store.add(session(0.01, 0.03, **other))  # type: ignore[arg-type]

    assert store.calibrations(TRAIN, HERE) == {}


def test_another_patch_of_the_driver_is_the_same_environment(store: CalibrationStore) -> None:
    store.add(session(0.01, 0.03))

    assert store.calibrations(TRAIN, msgspec.structs.replace(HERE, driver="550.90"))


def test_the_latest_session_is_the_newest_by_its_own_clock(store: CalibrationStore) -> None:
    store.add(session(0.01, 0.03, created_ns=9))
    store.add(session(0.02, 0.05, created_ns=3))

    latest = store.latest(TRAIN)
    assert latest is not None
    assert latest.created_ns == 9


def test_files_that_cannot_be_read_or_written_are_no_error(
    store: CalibrationStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = store.add(session(0.01, 0.03))
    assert file is not None
    (file.parent / "session-1-1.json").write_bytes(b"\xff{")
    newer = msgspec.structs.replace(session(0.5, 0.9), schema_version=2)
    store.add(newer)

    assert store.calibrations(TRAIN, HERE)["train", "time"].degrees == 1

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert CalibrationStore(Path("/project")).add(session(0.01, 0.03)) is None


def test_the_shift_of_rebuilding_counts_from_three_rebuilds_on() -> None:
    shifts = (0.05, -0.05, 0.05)
    sessions = [session(s - 0.001, s, s + 0.001, rebuilt=True) for s in shifts]

    assert pooled(sessions[:2])["train", "time"].rebuild_sd is None
    assert pooled(sessions)["train", "time"].rebuild_sd == pytest.approx(0.05, rel=0.01)


def gate(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calibrations: Calibrations = lambda target, fingerprint: {},
) -> GateResult:
    """Five pairs of which the second process of the head takes 1 % more than of the base."""

    def measured(
        program: SideProgram, target: Target, *, pair: int, first: bool, **_: object
    ) -> tuple[MeasuredProcess, Fingerprint]:
        time = 1_000_000 * (1 + 0.01 * (program.side == "B" and pair == 1))
        process = MeasuredProcess(
            target=target.name,
            side=program.side,
            pair=pair,
            first=first,
            measurements={"train": Measurement(samples_ns=(round(time),) * 20)},
            seconds=3.0 + pair,
        )
        return process, HERE

    monkeypatch.setattr(engine, "measure_process", measured)
    sides = [
        SideProgram(side=side, label=side, folder=tmp_path, targets=(TRAIN,), python="python")
        for side in ("A", "B")
    ]
    return run_gate(
        GatePlan(
            base=sides[0],
            head=sides[1],
            rules=Rules(RuleSettings(looks=(5,))),
            output=tmp_path,
            calibrations=calibrations,
        )
    )


def test_a_gate_on_the_same_code_gives_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = sessions_of(gate(tmp_path, monkeypatch), (TRAIN,), tmp_path, rebuilt=True)

    differences = found.differences["train"]["time"]
    assert differences == pytest.approx((0.0, math.log(1.01), 0.0, 0.0, 0.0))
    assert (found.fingerprint, found.target, found.rebuilt) == (HERE, TRAIN, True)
    assert found.seconds == 5.0


def test_a_gate_starts_with_what_is_known_of_its_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def known(target: Target, fingerprint: Fingerprint) -> dict[tuple[str, str], NoiseCalibration]:
        asked.append((target, fingerprint))
        return {("train", "time"): NoiseCalibration(variance=0.04, degrees=1000)}

    result = gate(tmp_path, monkeypatch, known)

    assert (TRAIN, HERE) in asked
    assert result.judgements[0].pair_sd == pytest.approx(0.2, rel=0.01)


def test_a_plan_has_the_pairs_and_the_time_of_each_target() -> None:
    quiet = session(*(0.01 * (-1) ** i for i in range(20)))
    noisy = session(
        *(0.05 * (-1) ** i for i in range(20)), target=Target(name="infer", script="infer.py")
    )

    plans = plan([noise_of([quiet]), noise_of([noisy])], RuleSettings(), 0.05)

    assert [row.benchmark for row in plans] == ["train", "infer"]
    few, many = (row.pairs for row in plans)
    assert few is not None
    assert many is not None
    assert 2 <= few < 10 < many < 200
    assert plans[0].seconds == 2 * few * 4.0
    assert total_seconds(plans) == 2 * (few + many) * 4.0
    # Twice the effect above the 1 % that never counts needs about a quarter of the pairs.
    larger = plan([noise_of([noisy])], RuleSettings(), 0.09)[0].pairs
    assert larger is not None
    assert many / 6 < larger < many / 2.5


def test_an_effect_that_building_again_also_has_needs_more_than_any_number_of_pairs() -> None:
    plans = plan([noise_of([session(0.01, -0.01, 0.01)])], RuleSettings(), 0.01)

    assert [(row.pairs, row.seconds) for row in plans] == [(None, None)]
    assert total_seconds(plans) is None
