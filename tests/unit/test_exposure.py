"""What of a step's busy time is computing, communication and copies."""

import polars as pl
import pytest

from gpuprof.collectors import schema
from gpuprof.roofline.analysis import Exposed
from gpuprof.roofline.steps.exposure import exposed
from gpuprof.roofline.work.work import Work


def work(*rows: tuple[str, int, int], steps: int = 1) -> Work:
    kernels = pl.DataFrame(
        [{"kind": kind, "start_ns": start, "end_ns": end} for kind, start, end in rows],
        schema={name: schema.KERNELS[name] for name in ("kind", "start_ns", "end_ns")},
    )
    return Work(kernels, (), steps)


def test_what_computing_hides_is_not_exposed() -> None:
    found = exposed(work(("kernel", 0, 100), ("collective", 20, 80), ("memcpy", 90, 100)))

    assert found == Exposed(computing_ns=100, communication_ns=0, copies_ns=0)


def test_what_runs_alone_is_exposed() -> None:
    found = exposed(work(("kernel", 0, 100), ("collective", 80, 150), ("memset", 200, 210)))

    assert found == Exposed(computing_ns=100, communication_ns=50, copies_ns=10)


def test_communication_that_a_copy_hides_counts_as_copy() -> None:
    found = exposed(work(("collective", 0, 100), ("memcpy", 40, 60)))

    assert found == Exposed(computing_ns=0, communication_ns=80, copies_ns=20)


def test_it_is_of_one_step() -> None:
    found = exposed(work(("kernel", 0, 100), ("collective", 100, 140), steps=2))

    assert found is not None
    assert (found.computing_ns, found.communication_ns) == (50, 20)
    assert found.busy_ns == 70


@pytest.mark.parametrize("steps", [1, 3])
def test_without_device_work_there_is_nothing_to_say(steps: int) -> None:
    assert exposed(work(steps=steps)) is None
