"""What of a step's busy time is computing, communication and copies, on each device."""

import polars as pl
import pytest

from gpuprof.collectors import schema
from gpuprof.roofline.copies import direction, host_memory, is_over_link, over_link
from gpuprof.roofline.step_figures import Exposed, ExposedCopies
from gpuprof.roofline.steps.exposure import critical, device_uses
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.work import Work

TO_DEVICE = "Memcpy HtoD (Pageable -> Device)"
FROM_DEVICE = "Memcpy DtoH (Device -> Pinned)"
WITHIN = "Memcpy DtoD (Device -> Device)"
COLUMNS = ("kind", "name", "device", "step", "start_ns", "end_ns")


def work(*rows: tuple[str, int, int], device: int = 0, step: int = 0, steps: int = 1) -> Work:
    """Pieces of device work, each its kind or the name of a copy."""
    kernels = pl.DataFrame(
        [
            {
                "kind": "memcpy" if what.startswith("Memcpy") else what,
                "name": what,
                "device": device,
                "step": step,
                "start_ns": start,
                "end_ns": end,
            }
            for what, start, end in rows
        ],
        schema={name: schema.KERNELS[name] for name in COLUMNS},
    )
    return Work(with_waits(kernels.with_columns(over_link=over_link())), (), steps)


def with_waits(kernels: pl.DataFrame, *waits_ns: int | None) -> pl.DataFrame:
    """`kernels` with what each waits for other ranks; unknown unless given."""
    waits = list(waits_ns) or [None] * kernels.height
    return kernels.with_columns(
        rank_wait_ns=pl.Series(waits, dtype=pl.Int64), call_wait_ns=pl.lit(0, pl.Int64)
    )


def together(*parts: Work) -> Work:
    return Work(pl.concat([part.kernels for part in parts]), (), 1)


def exposed(*rows: tuple[str, int, int], steps: int = 1) -> Exposed | None:
    return critical(device_uses(work(*rows), Stretch("host range", (1000,) * steps)))


def amounts(found: Exposed | None) -> tuple[int, int, int]:
    assert found is not None
    return found.computing_ns, found.communication_ns, found.copies_ns


def test_what_computing_hides_is_not_exposed() -> None:
    found = exposed(("kernel", 0, 100), ("collective", 20, 80), (TO_DEVICE, 90, 100))
    assert amounts(found) == (100, 0, 0)


def test_what_runs_alone_is_exposed() -> None:
    found = exposed(("kernel", 0, 100), ("collective", 80, 150), (TO_DEVICE, 200, 210))
    assert amounts(found) == (100, 50, 10)


def test_communication_that_a_copy_hides_counts_as_copy() -> None:
    assert amounts(exposed(("collective", 0, 100), (FROM_DEVICE, 40, 60))) == (0, 80, 20)


def test_what_stays_on_the_device_is_no_copy_over_a_link() -> None:
    assert amounts(exposed((WITHIN, 0, 100), ("memset", 100, 110))) == (110, 0, 0)


def test_copies_are_told_apart_by_direction_and_host_memory() -> None:
    found = exposed(
        ("kernel", 0, 100),
        (TO_DEVICE, 50, 130),
        (FROM_DEVICE, 200, 240),
        ("Memcpy HtoD (Pinned -> Device)", 300, 305),
    )
    assert found is not None
    assert found.copies == (
        ExposedCopies(direction="device to host", host_memory="pinned", exposed_ns=40),
        ExposedCopies(direction="host to device", host_memory="pageable", exposed_ns=30),
        ExposedCopies(direction="host to device", host_memory="pinned", exposed_ns=5),
    )
    assert found.copies_ns == 75


@pytest.mark.parametrize(
    ("name", "way", "memory"),
    [
        (TO_DEVICE, "host to device", "pageable"),
        (FROM_DEVICE, "device to host", "pinned"),
        ("Memcpy HtoD (Host -> Device)", "host to device", ""),
        ("Memcpy PtoP (Device -> Device)", "device to device", ""),
        ("Memcpy unified HtoD (Managed -> Device)", "host to device", ""),
        ("CopyDeviceToHost", "device to host", ""),
        ("Memcpy (Unknown -> Unknown)", "", ""),
    ],
)
def test_names_of_copies(name: str, way: str, memory: str) -> None:
    assert (direction(name), host_memory(name)) == (way, memory)
    assert is_over_link("memcpy", name)
    assert not is_over_link("kernel", name)
    assert not is_over_link("memcpy", WITHIN)


def test_it_is_of_one_step() -> None:
    found = exposed(("kernel", 0, 100), ("collective", 100, 140), steps=2)
    assert amounts(found) == (50, 20, 0)
    assert found is not None
    assert found.busy_ns == 70


def test_a_window_takes_what_runs_in_it_and_no_more() -> None:
    kernels = together(
        work(("kernel", 0, 150), ("collective", 150, 300), step=0),
        work(("kernel", 300, 500), ("kernel", 500, 900), step=1),
    )
    (found,) = device_uses(kernels, Stretch("device period", (400,), (1,), (100, 500)))
    assert amounts(found) == (250, 150, 0)


def test_each_device_of_a_process_has_its_own_and_waits_for_the_others() -> None:
    kernels = together(
        work(("kernel", 0, 100), device=0),
        work(("kernel", 100, 300), device=1),
        work(("kernel", 300, 350), device=3),
    )
    uses = device_uses(kernels, Stretch("host range", (1000,)))
    assert [(use.device, use.busy_ns, use.other_devices_ns) for use in uses] == [
        (0, 100, 250),
        (1, 200, 150),
        (3, 50, 300),
    ]
    longest = critical(uses)
    assert longest is not None
    assert longest.device == 1


def test_without_device_work_there_is_nothing_to_say() -> None:
    assert device_uses(work(), Stretch("host range", (1000,))) == ()
    assert critical(()) is None


@pytest.mark.parametrize(
    ("waits_ns", "expected"),
    [
        # Computing hides the first 40 of 90 ns of waiting; a broadcast tells nothing.
        ((None, 90, None), 50),
        ((None, 20, None), 0),
        ((None, 0, 20), 20),
        ((None, None, None), None),
    ],
)
def test_waiting_for_other_ranks_is_a_part_of_communication(
    waits_ns: tuple[int | None, ...], expected: int | None
) -> None:
    rows = work(("kernel", 0, 50), ("collective", 10, 110), ("collective", 200, 230))
    rows = Work(with_waits(rows.kernels, *waits_ns), (), 1)
    found = critical(device_uses(rows, Stretch("host range", (1000,))))
    assert found is not None
    assert (found.communication_ns, found.rank_waits_ns) == (90, expected)
