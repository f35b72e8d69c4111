"""NVML samples while steps were timed."""

import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.live.nvml.sampler import SLOWDOWN_REASONS
from gpuprof.roofline.steps.device_state import device_state

BITS = list(SLOWDOWN_REASONS)


def samples(*rows: dict[str, int | None]) -> pl.DataFrame:
    return schema.conform("samples", pl.DataFrame([{"device": 0, **row} for row in rows]))


def steps(*rows: tuple[str, int, int]) -> pl.DataFrame:
    names = ("phase", "start_ns", "end_ns")
    return schema.conform("steps", pl.DataFrame(rows, schema=names, orient="row"))


TIMED = steps(("warmup", 0, 100), ("timed", 100, 200), ("timed", 200, 300), ("profiled", 300, 400))


def test_samples_of_the_timed_steps_count() -> None:
    found = device_state(
        samples(
            {"time_ns": 50, "sm_clock_mhz": 100, "throttle_reasons": BITS[0]},
            {"time_ns": 100, "sm_clock_mhz": 1000, "power_milliwatts": 300_000},
            {"time_ns": 250, "sm_clock_mhz": 1500, "power_milliwatts": 500_000},
            {"time_ns": 300, "sm_clock_mhz": 1401, "throttle_reasons": BITS[1] | BITS[2]},
            {"time_ns": 301, "sm_clock_mhz": 9000, "temperature_celsius": 99},
        ),
        TIMED,
        0,
    )
    assert found is not None
    assert found.samples == 3
    assert (found.sm_clock_mhz_minimum, found.sm_clock_mhz_median) == (1000, 1401)
    assert found.sm_clock_mhz_maximum == 1500
    assert found.power_watts_median == 400.0
    assert found.throttle_reasons == (SLOWDOWN_REASONS[BITS[1]], SLOWDOWN_REASONS[BITS[2]])


def test_a_field_that_never_answered_is_unknown() -> None:
    found = device_state(samples({"time_ns": 150}), TIMED, 0)
    assert found is not None
    assert found.sm_clock_mhz_median is None
    assert found.power_watts_median is None
    assert found.temperature_celsius_maximum is None
    assert found.throttle_reasons == ()


def test_steps_between_two_samples_are_described_by_all() -> None:
    found = device_state(samples({"time_ns": 0}, {"time_ns": 1000}), TIMED, 0)
    assert found is not None
    assert found.samples == 2


def test_without_timed_steps_all_samples_count() -> None:
    found = device_state(
        samples({"time_ns": 0}, {"time_ns": 350}), steps(("profiled", 300, 400)), 0
    )
    assert found is not None
    assert found.samples == 2


def test_other_devices_do_not_count() -> None:
    assert device_state(samples({"time_ns": 150, "device": 1}), TIMED, 0) is None
    assert device_state(schema.empty("samples"), TIMED, 0) is None
