"""Theoretical occupancy, against what Nsight Compute computed for recorded launches."""

import math
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors.joining.launch_keys import KEY, launch_keys
from gpuprof.collectors.opening import open_traces
from gpuprof.roofline.machine.occupancy import occupancy

DATA = Path(__file__).parents[1] / "data" / "ncu"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "recordings"
FRACTION = "sm__maximum_warps_per_active_cycle_pct"
WAVES = "launch__waves_per_multiprocessor"
LIMITS = {
    "blocks": "launch__occupancy_limit_blocks",
    "registers": "launch__occupancy_limit_registers",
    "warps": "launch__occupancy_limit_warps",
}


def launches(path: Path) -> pl.DataFrame:
    """A row for each launch, with its counters as columns."""
    capture = open_traces([path])
    metrics = [FRACTION, WAVES, *LIMITS.values()]
    counters = capture.counters.filter(pl.col("metric").is_in(metrics)).pivot(
        "metric", index=KEY, values="value"
    )
    keys = launch_keys(capture.kernels, capture.launches)
    kernels = capture.kernels.with_row_index("row")
    return keys.join(kernels, on="row").join(counters, on=KEY, how="inner")


@pytest.mark.parametrize(
    "path",
    [
        DATA / "h100_ops_raw.csv.gz",
        SHARED / "h100_ops_ncu_raw.csv.gz",
        SHARED / "h200_block_targeted.ncu-rep.gz",
    ],
    ids=lambda path: path.name,
)
def test_equals_that_of_nsight_compute(path: Path) -> None:
    if not path.exists():
        pytest.skip("the recordings of ../shared are absent")
    if path.suffixes[0] == ".ncu-rep":
        pytest.importorskip("ncu_report")
    compared = 0
    for row in launches(path).iter_rows(named=True):
        if row.get(FRACTION) is None:
            continue
        threads = row["block_x"] * row["block_y"] * row["block_z"]
        found = occupancy(
            "9.0",
            threads_per_block=threads,
            registers_per_thread=row["registers"],
            shared_bytes=row["shared_memory"],
        )
        assert found is not None, row["name"]
        assert found.fraction == row[FRACTION] / 100, row["name"]
        grid = row["grid_x"] * row["grid_y"] * row["grid_z"]
        if row.get(WAVES) is not None:
            # Printed with two digits behind the point.
            assert math.isclose(found.waves(grid, 132), row[WAVES], abs_tol=0.00501), row["name"]
        # Each limit that binds allows exactly so many blocks, and no other one fewer.
        for limit, metric in LIMITS.items():
            if row.get(metric) is not None:
                assert row[metric] >= found.blocks
                if limit in found.limits:
                    assert row[metric] == found.blocks
        compared += 1
    assert compared


def test_by_hand() -> None:
    """40 registers are 1280 a warp: 12 warps in each of the four parts of 16384, 48 in all."""
    found = occupancy("9.0", threads_per_block=256, registers_per_thread=40, shared_bytes=0)
    assert found is not None
    assert (found.blocks, found.warps, found.fraction) == (6, 48, 0.75)
    assert found.limits == ("registers",)
    assert found.waves(1584, 132) == 2.0


def test_shared_memory_with_what_the_driver_takes() -> None:
    """227 KiB and the driver's one fill the 228 KiB of a multiprocessor of an H100."""
    full = occupancy("9.0", threads_per_block=128, registers_per_thread=32, shared_bytes=227 * 1024)
    assert full is not None
    assert (full.blocks, full.limits) == (1, ("shared memory",))
    half = occupancy("9.0", threads_per_block=128, registers_per_thread=32, shared_bytes=113 * 1024)
    assert half is not None
    assert half.blocks == 2


def test_a_warp_that_is_not_full_counts_whole() -> None:
    found = occupancy("8.6", threads_per_block=33, registers_per_thread=16, shared_bytes=0)
    assert found is not None
    # Sixteen blocks of two warps, of 48.
    assert (found.blocks, found.warps, found.limits) == (16, 32, ("blocks",))
    assert found.fraction == 32 / 48


@pytest.mark.parametrize("capability", [None, "", "5.0", "gfx942"])
def test_unknown_devices_have_none(capability: str | None) -> None:
    assert (
        occupancy(capability, threads_per_block=256, registers_per_thread=32, shared_bytes=0)
        is None
    )


def test_what_does_not_fit_has_none() -> None:
    assert (
        occupancy("9.0", threads_per_block=1024, registers_per_thread=255, shared_bytes=0) is None
    )
    assert occupancy("9.0", threads_per_block=0, registers_per_thread=32, shared_bytes=0) is None
