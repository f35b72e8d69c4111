"""Work that a GPU did more slowly in the timed steps than in the profiled ones."""

import pytest

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import DeviceState
from gpuprof.roofline.step_figures import DEVICE_CLOCK, Exposed, StepTimes
from gpuprof.roofline.steps.slower_device import slower_by_ns
from gpuprof.roofline.steps.stretch import Stretch

GPU = Device(index=0, kind="cuda", name="a GPU", maximum_sm_clock_mhz=1980)


def slower(
    *,
    step: int,
    busy: int,
    profiled: int,
    host: int | None = None,
    clock_mhz: int | None = None,
    clock: str = DEVICE_CLOCK,
    others: int = 0,
) -> int:
    times = StepTimes(
        found_by="",
        warmup=0,
        timed=1,
        profiled=1,
        clock=clock,
        median_ns=step,
        host_median_ns=host,
    )
    return slower_by_ns(
        times,
        Stretch("device period", (profiled,)),
        Exposed(computing_ns=busy, communication_ns=0, copies_ns=0, other_devices_ns=others),
        state=None if clock_mhz is None else DeviceState(samples=1, sm_clock_mhz_median=clock_mhz),
        device=GPU,
    )


def test_products_at_the_power_limit_were_shorter_when_profiled() -> None:
    # Seen on an H200: 5.67 ms of products, which take 6.54 ms once the clock has come down.
    assert slower(step=6540, busy=5670, profiled=5690, host=100) == 6540 - 5670


def test_many_small_kernels_that_the_profiler_makes_wait_do_not_wait_without_it() -> None:
    # Seen on an H200: 400 small kernels behind a product, queued in a third of their time.
    assert slower(step=4420, busy=3410, profiled=6100, host=1400) == 4420 - 3410


def test_a_host_bound_step_waits_as_before() -> None:
    # The profiler adds to what is waited for, so nothing is left to explain.
    assert slower(step=3000, busy=400, profiled=4200, host=2990, clock_mhz=1500) == 0


@pytest.mark.parametrize(
    ("clock_mhz", "expected"), [(None, 0), (1980, 0), (1800, 500), (1650, 900)]
)
def test_where_the_host_is_not_ahead_the_clock_must_account_for_it(
    clock_mhz: int | None, expected: int
) -> None:
    # 5000 of work at 1980 MHz are 5500 at 1800 MHz; no more than 900 are unaccounted for.
    found = slower(step=6000, busy=5000, profiled=5100, host=5990, clock_mhz=clock_mhz)
    assert found == expected


def test_waiting_for_another_device_of_the_process_is_no_work_of_this_one() -> None:
    # Two devices of a pipeline take turns: this one works for 2 ms of 5 and waits 3 for the other.
    assert slower(step=5000, busy=2000, profiled=5000, host=100, others=3000) == 0
    assert slower(step=5400, busy=2000, profiled=5000, host=100, others=3000) == 400


def test_without_the_devices_clock_nothing_is_known() -> None:
    assert slower(step=6000, busy=5000, profiled=5100, clock="host clock") == 0
