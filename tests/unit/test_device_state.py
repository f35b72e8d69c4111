"""NVML samples while steps were timed."""

import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.live.nvml.slowdowns import SLOWDOWN_REASONS
from gpuprof.roofline.steps.device_state import device_state, working_times

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
    assert found.throttle_reasons is None


def test_samples_before_and_after_the_steps_do_not_stand_for_them() -> None:
    assert device_state(samples({"time_ns": 0}, {"time_ns": 1000}), TIMED, 0) is None


def test_without_timed_steps_nothing_is_said_of_them() -> None:
    profiled = steps(("profiled", 300, 400))
    assert device_state(samples({"time_ns": 0}, {"time_ns": 350}), profiled, 0) is None


def ahead(*, anchored: bool) -> pl.DataFrame:
    """The host queued two steps in 20 ns, while the device was at rest or in the warm-up.

    The device took 500 ns each, and began when the host had been done for long.
    """
    rows = [
        {"phase": "timed", "start_ns": 100 + 10 * k, "end_ns": 110 + 10 * k, "device_ns": 500}
        for k in range(2)
    ]
    if anchored:
        rows = [{**row, "device_start_ns": 700 + 500 * k} for k, row in enumerate(rows)]
    return schema.conform("steps", pl.DataFrame(rows))


# The clock that NVML sees while the host queues, while the device works, and afterwards.
DROWSY = samples(
    {"time_ns": 105, "sm_clock_mhz": 345},
    {"time_ns": 699, "sm_clock_mhz": 345},
    {"time_ns": 700, "sm_clock_mhz": 1980},
    {"time_ns": 1300, "sm_clock_mhz": 1965},
    {"time_ns": 1701, "sm_clock_mhz": 345},
)


def test_where_the_host_ran_ahead_samples_are_chosen_by_the_devices_time() -> None:
    found = device_state(DROWSY, ahead(anchored=True), 0)
    assert found is not None
    assert (found.samples, found.sm_clock_mhz_minimum) == (2, 1965)


def test_no_sample_within_the_devices_time_means_no_clock() -> None:
    idle = DROWSY.filter(pl.col("sm_clock_mhz") == 345)
    assert device_state(idle, ahead(anchored=True), 0) is None


def test_a_pause_between_two_steps_does_not_count() -> None:
    apart = ahead(anchored=True).with_columns(
        pl.Series("device_start_ns", [100, 1201], dtype=pl.Int64)
    )
    found = device_state(DROWSY, apart, 0)
    assert found is not None
    assert found.samples == 3
    assert device_state(samples({"time_ns": 1000}), apart, 0) is None


def test_an_older_capture_adds_up_the_devices_times_from_where_the_host_began() -> None:
    assert working_times(ahead(anchored=False)) == [(100, 600), (600, 1100)]


def test_without_device_times_the_host_knows_when() -> None:
    assert working_times(steps(("timed", 100, 200), ("timed", 200, 300))) == [
        (100, 200),
        (200, 300),
    ]


def test_the_steps_of_a_bench_lie_anywhere_between_its_ends() -> None:
    calls = ahead(anchored=False).with_columns(
        pl.lit(100, pl.Int64).alias("start_ns"), pl.lit(9000, pl.Int64).alias("end_ns")
    )
    found = device_state(DROWSY, calls, 0)
    assert found is not None
    assert found.samples == DROWSY.height


def test_other_devices_do_not_count() -> None:
    assert device_state(samples({"time_ns": 150, "device": 1}), TIMED, 0) is None
    assert device_state(schema.empty("samples"), TIMED, 0) is None
