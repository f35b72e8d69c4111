"""Energy of steps by the device's counter, and what steps cost."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import polars as pl
import pytest
from capture_builder import H100

from gpuprof.collectors import schema, storage
from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.manifest import Device
from gpuprof.profiler.configuration.file import apply_configuration
from gpuprof.reports.energy import energy_facts
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.energy_figures import Energy
from gpuprof.roofline.prices import Prices, cost_per_step, set_prices
from gpuprof.roofline.step_figures import StepTimes
from gpuprof.roofline.steps.energy import energy_of_steps

MS = 1_000_000
SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def _no_prices() -> Iterator[None]:
    yield
    set_prices(Prices())


def steps(
    number: int, length_ms: int, *, pause_ms: int = 0, tokens: int | None = None
) -> pl.DataFrame:
    """Timed steps from second 1 on."""
    starts = [SECOND + n * (length_ms + pause_ms) * MS for n in range(number)]
    rows = [
        {
            "rank": 0,
            "index": n,
            "start_ns": start,
            "end_ns": start + length_ms * MS,
            "phase": "timed",
            "device_ns": length_ms * MS,
            "device_start_ns": start,
            "tokens": tokens,
        }
        for n, start in enumerate(starts)
    ]
    return schema.conform("steps", pl.DataFrame(rows))


def readings(times_ms: range, watts: float, *, again_at_ms: int = 10**9) -> pl.DataFrame:
    """The counter of a device that takes `watts`, and starts anew where its driver does."""
    rows = [
        {
            "rank": 0,
            "device": 0,
            "time_ns": at * MS,
            "energy_millijoules": round(watts * (at if at < again_at_ms else at - again_at_ms)),
        }
        for at in times_ms
    ]
    return schema.conform("samples", pl.DataFrame(rows))


def times(*lengths_ms: float) -> StepTimes:
    return StepTimes(
        found_by="",
        warmup=0,
        timed=10,
        profiled=3,
        clock="CUDA events",
        median_ns=round(sorted(lengths_ms)[len(lengths_ms) // 2] * MS),
        samples_ns=tuple(round(length * MS) for length in lengths_ms),
    )


@pytest.mark.parametrize(("number", "length_ms", "watts"), [(40, 20, 650.0), (3, 400, 71.5)])
def test_a_step_takes_the_mean_power_for_its_length(
    number: int, length_ms: int, watts: float
) -> None:
    found = energy_of_steps(readings(range(0, 4000, 100), watts), steps(number, length_ms), H100)
    assert found is not None
    assert found.joules_per_step == pytest.approx(watts * length_ms / 1000, rel=0.001)
    assert found.power_watts == pytest.approx(watts, rel=0.001)
    # Readings lie at 1.0, 1.1 ... s, the last within the steps.
    lasting_ms = number * length_ms
    assert found.seconds == pytest.approx(lasting_ms // 100 / 10)
    assert found.uncertainty == pytest.approx(0.1 / found.seconds)
    assert found.joules_per_token is None


def test_tokens_share_the_energy() -> None:
    found = energy_of_steps(readings(range(0, 4000, 100), 500.0), steps(50, 20, tokens=500), H100)
    assert found is not None
    # 500 tokens a step of 10 J.
    assert found.joules_per_token == pytest.approx(0.02, rel=0.001)


def test_unequal_steps_share_what_all_of_them_took() -> None:
    """Every fourth step is ten times as long: the median would be of the short ones."""
    lengths = [10, 10, 10, 100] * 10
    starts = [SECOND + sum(lengths[:n]) * MS for n in range(len(lengths))]
    timed = steps(len(lengths), 10).with_columns(
        start_ns=pl.Series(starts),
        device_start_ns=pl.Series(starts),
        device_ns=pl.Series([length * MS for length in lengths]),
        tokens=pl.Series([4, 4, 4, 40] * 10),
    )
    found = energy_of_steps(readings(range(0, 4000, 100), 500.0), timed, H100)
    assert found is not None
    assert found.joules_per_step == pytest.approx(500 * 1.3 / 40, rel=0.001)
    assert found.joules_per_token == pytest.approx(500 * 1.3 / 520, rel=0.001)
    paid = Prices(device_hour=3600.0)
    assert cost_per_step(times(*lengths), None, paid) == pytest.approx(1.3 / 40)


@pytest.mark.parametrize(
    ("samples", "timed", "device"),
    [
        # Two readings, 0.1 s apart.
        (readings(range(0, 4000, 100), 500.0), steps(9, 20), H100),
        # Half of the time nothing is timed.
        (readings(range(0, 4000, 100), 500.0), steps(50, 20, pause_ms=20), H100),
        # The driver was loaded anew.
        (readings(range(0, 4000, 100), 500.0, again_at_ms=1500), steps(50, 20), H100),
        (readings(range(0, 500, 100), 500.0), steps(50, 20), H100),
        (readings(range(0, 4000, 100), 500.0), steps(50, 20).clear(), H100),
        (readings(range(0, 4000, 100), 500.0), steps(50, 20), None),
        (
            readings(range(0, 4000, 100), 500.0),
            steps(50, 20),
            Device(index=0, kind="cpu", name="A CPU"),
        ),
    ],
)
def test_without_enough_readings_nothing_is_said(
    samples: pl.DataFrame, timed: pl.DataFrame, device: Device | None
) -> None:
    assert energy_of_steps(samples, timed, device) is None


ENERGY = Energy(
    power_watts=700.0, seconds=1.0, joules_per_step=14.0, joules_per_token=0.002, uncertainty=0.1
)


def test_a_step_costs_its_hours_and_kilowatt_hours() -> None:
    both = Prices(currency="EUR", device_hour=3.6, kilowatt_hour=0.36)
    assert cost_per_step(times(20), ENERGY, both) == pytest.approx(
        0.020 * 0.001 + 14 / 3_600_000 * 0.36
    )
    assert cost_per_step(times(20), None, Prices(device_hour=3.6)) == pytest.approx(0.00002)
    # The energy is a part of it that is not known.
    assert cost_per_step(times(20), None, both) is None
    assert cost_per_step(times(20), ENERGY, Prices()) is None
    # Under the profiler a step is longer than those that are paid for.
    profiled = msgspec.structs.replace(times(20), timed=0)
    assert cost_per_step(profiled, ENERGY, both) is None


def told(directory: Path, text: str) -> dict[str, tuple[str, str]]:
    """Facts of a capture's analysis with this energy and the prices of a file."""
    import msgspec

    root = Path(__file__).parents[1] / "data" / "measured"
    (directory / "gpuprof.toml").write_text(text)
    apply_configuration(directory)
    analysis = msgspec.structs.replace(
        analyze(storage.load(root / "h200_products")), energy=ENERGY, steps=times(20, 20, 20)
    )
    return {fact.label: (fact.value, fact.note) for fact in energy_facts(analysis)}


def test_the_report_says_joules_and_money(tmp_path: Path) -> None:
    found = told(tmp_path, '[prices]\ncurrency = "USD"\ndevice_hour = 3.6\n')
    assert found == {
        "Energy": (
            "14.0 J a step",
            "2.00 mJ a token, 700 W in the timed steps, by this device's energy counter, ± 10.0%",
        ),
        "Cost": (
            "0.0200 USD a thousand steps",
            "0.00286 USD a million tokens, at 3.60 USD an hour of one device",
        ),
    }


def test_without_prices_there_is_no_cost(tmp_path: Path) -> None:
    assert told(tmp_path, "").keys() == {"Energy"}


@pytest.mark.parametrize("value", ["-1", "nan", "inf", '"three"'])
def test_a_price_is_a_number_from_0_on(tmp_path: Path, value: str) -> None:
    (tmp_path / "gpuprof.toml").write_text(f"[prices]\ndevice_hour = {value}\n")
    with pytest.raises(CommandError, match="device_hour"):
        apply_configuration(tmp_path)


def test_a_wrong_key_of_prices_is_named(tmp_path: Path) -> None:
    (tmp_path / "gpuprof.toml").write_text("[prices]\nhour = 3\n")
    with pytest.raises(CommandError, match=r"prices.*hour.*did you mean 'device_hour'|known are"):
        apply_configuration(tmp_path)
