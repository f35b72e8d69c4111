"""The class of a piece of work, its evidence, and what is gained where its reason is gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof.roofline.classes import classes
from gpuprof.roofline.cost_models.cost import MatrixProduct
from gpuprof.roofline.machine.ceilings import Ceiling
from gpuprof.roofline.machine.roof_time import ResourceTime, RoofTime
from gpuprof.roofline.points.classify import (
    Circumstances,
    SmClock,
    TensorPath,
    WorkVerdict,
    classify,
)
from gpuprof.roofline.points.grid import Grid, Launches, grid_of, idle_fraction
from gpuprof.roofline.points.tiles import tile_counts

TENSOR = Ceiling(
    kind="compute",
    rate=1e15,
    source="datasheet",
    reference="t",
    unit="tensor",
    precision="bf16",
    clock_mhz=1800,
)
DRAM = Ceiling(kind="memory", rate=1e12, source="measured", reference="t", level="DRAM")
MIB = 2**20


def times(compute_ns: float | None, memory_ns: float) -> RoofTime:
    compute = None if compute_ns is None else ResourceTime(compute_ns, TENSOR)
    return RoofTime(compute, ResourceTime(memory_ns, DRAM), complete=True)


def verdict(roof: RoofTime, known: Circumstances, *, steps: int = 1) -> tuple[str, str, int | None]:
    found = classify(roof, known, "nobody knows").bottleneck(
        roof, calls=known.calls, device_ns=known.device_ns, steps=steps
    )
    return found.kind, found.evidence, found.gain_ns


def grid(blocks: int, multiprocessors: int = 132) -> Grid | None:
    return grid_of([Launches(blocks, 1000)], multiprocessors)


def test_the_binding_resource_names_the_class() -> None:
    kind, evidence, gain = verdict(times(80_000, 20_000), Circumstances(1, 100_000))
    assert (kind, gain) == ("compute", 20_000)
    assert evidence == "80.0% of bf16 tensor (datasheet, dense)"
    kind, evidence, gain = verdict(times(20_000, 60_000), Circumstances(1, 100_000))
    assert (kind, gain) == ("memory", 40_000)
    assert evidence == "60.0% of DRAM (measured)"


def test_large_work_far_below_its_roof_keeps_its_resource() -> None:
    assert verdict(times(100_000, 20_000), Circumstances(1, 1_000_000))[0] == "compute"


def test_a_call_whose_time_is_that_of_a_launch_is_small() -> None:
    kind, evidence, gain = verdict(times(None, 4_000), Circumstances(4, 12_000), steps=2)
    assert (kind, gain) == ("small", 4_000)
    assert evidence == "1 µs of work at the roof takes 3 µs a call"


def test_a_call_of_several_launches_needs_one_time_for_each() -> None:
    assert verdict(times(None, 1_000), Circumstances(1, 9_000))[0] == "memory"
    assert verdict(times(None, 1_000), Circumstances(1, 9_000, launches=4))[0] == "small"


def test_little_work_that_takes_much_longer_than_a_launch_is_not_small() -> None:
    assert verdict(times(1_700, 100), Circumstances(1, 50_000))[0] == "compute"


def test_little_work_near_its_roof_is_not_small() -> None:
    assert verdict(times(None, 1_000), Circumstances(1, 1_900))[0] == "memory"


def test_a_cpu_needs_longer_to_start_a_call() -> None:
    assert verdict(times(None, 4_000), Circumstances(1, 9_000))[0] == "memory"
    assert verdict(times(None, 4_000), Circumstances(1, 9_000, device_kind="cpu"))[0] == "small"


def test_few_blocks_that_explain_most_of_the_loss_are_the_class() -> None:
    """32 of 132 multiprocessors work: 75.8 % of the time could be gone, at 10 % of the roof."""
    known = Circumstances(1, 1_000_000, grid=grid(32))
    kind, evidence, gain = verdict(times(100_000, 20_000), known)
    assert kind == "few-blocks"
    assert evidence.endswith("; 32 blocks for 132 multiprocessors")
    assert gain == round(1_000_000 * (1 - 32 / 132))


def test_120_blocks_on_132_multiprocessors_lose_9_percent_and_are_no_class() -> None:
    known = Circumstances(1, 1_000_000, grid=grid(120))
    kind, evidence, gain = verdict(times(420_000, 20_000), known)
    assert (kind, gain) == ("compute", 580_000)
    assert evidence.endswith("the grid loses 9%: 120 blocks for 132 multiprocessors")


def test_the_tail_of_the_last_round() -> None:
    """133 blocks take as long as 264 would: 49.6 % of the time, at 45 % of the roof."""
    known = Circumstances(1, 1_000_000, grid=grid(133))
    kind, evidence, gain = verdict(times(450_000, 20_000), known)
    assert kind == "tail"
    assert "133 blocks for 132 multiprocessors: 2 on some, 1.01 on average" in evidence
    assert gain == round(1_000_000 * (1 - 133 / 264))


def test_a_tail_that_explains_most_of_a_small_loss_is_one_near_the_roof_too() -> None:
    known = Circumstances(1, 1_000_000, grid=grid(165))
    assert verdict(times(550_000, 20_000), known)[0] == "tail"
    # Of traffic that is not certain: some multiprocessors can saturate DRAM.
    assert verdict(times(None, 550_000), known)[0] == "memory"


def test_a_grid_that_would_explain_more_than_the_loss_has_no_equal_blocks() -> None:
    known = Circumstances(1, 1_000_000, grid=grid(133))
    assert verdict(times(900_000, 20_000), known)[0] == "compute"


def test_filling_the_grid_makes_no_launch_shorter_than_the_shortest() -> None:
    known = Circumstances(1, 2_500, grid=grid(1))
    assert verdict(times(None, 10), known)[0] == "small"


@pytest.mark.parametrize(
    ("blocks", "multiprocessors", "idle"),
    [
        (1, 132, 131 / 132),
        (120, 132, 12 / 132),
        (132, 132, 0.0),
        (133, 132, 1 - 133 / 264),
        (1320, 132, 0.0),
    ],
)
def test_what_a_grid_leaves_idle(blocks: int, multiprocessors: int, idle: float) -> None:
    assert idle_fraction(blocks, multiprocessors) == pytest.approx(idle)


@given(st.integers(1, 5000), st.integers(1, 400))
def test_a_grid_dealt_out_block_by_block_leaves_as_much_idle(blocks: int, units: int) -> None:
    busy = [0] * units
    for block in range(blocks):
        busy[block % units] += 1
    longest = max(busy)
    expected = sum(longest - each for each in busy) / (longest * units)
    assert idle_fraction(blocks, units) == pytest.approx(expected)


def test_launches_of_several_sizes_count_by_their_time() -> None:
    found = grid_of([Launches(66, 3000), Launches(132, 1000)], 132)
    assert found is not None
    assert (found.idle_fraction, found.pieces) == (pytest.approx(0.5 * 3 / 4), 66)


@pytest.mark.parametrize("blocks", [[None], [32, None], [132], []])
def test_grids_that_are_unknown_or_full_say_nothing(blocks: list[int | None]) -> None:
    assert grid_of([Launches(count, 10) for count in blocks], 132) is None
    assert grid_of([Launches(32, 10)], None) is None


NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def test_a_persistent_kernels_grid_is_full_and_its_tiles_are_counted() -> None:
    """140 tiles of 256 x 128 on 132 multiprocessors: as long as 264 would take."""
    product = MatrixProduct(rows=2560, inner=8192, columns=1792)
    tiles = tile_counts(NVJET, product)
    assert tiles == (10 * 14, 20 * 7)
    found = grid_of([Launches(132, 1000, tiles)], 132)
    assert found is not None
    assert found.idle_fraction == pytest.approx(1 - 140 / 264)
    assert found.sentence == "140 tiles for 132 multiprocessors: 2 on some, 1.06 on average"


def test_of_two_readings_of_a_tile_the_one_that_loses_less_counts() -> None:
    """As columns 1024 / 256 by 4224 / 128 are 132 tiles, as rows 8 by 17 are 136."""
    tiles = tile_counts(NVJET, MatrixProduct(rows=1024, inner=64, columns=4224))
    assert tiles == (4 * 33, 8 * 17)
    assert grid_of([Launches(132, 1000, tiles)], 132) is None


def test_a_cluster_that_does_not_divide_the_device_leaves_the_rest_idle() -> None:
    found = grid_of([Launches(128, 1000, (256,))], 132)
    assert found is not None
    assert found.idle_fraction == pytest.approx(1 - 256 / 264)


@pytest.mark.parametrize(
    ("name", "product"),
    [
        (NVJET, None),
        ("nvjet_sm90_tst_64x64_64x13_2x1_v_bz_splitK_TNT", MatrixProduct(8, 64, 4096)),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", MatrixProduct(8, 64, 64)),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64>", MatrixProduct(8, 64, 64)),
        (NVJET, MatrixProduct(0, 64, 4096)),
    ],
)
def test_other_kernels_tell_no_tiles(name: str, product: MatrixProduct | None) -> None:
    assert tile_counts(name, product) == ()


def cached(memory_ns: float, data: int, l2: int | None) -> tuple[str, str, int | None]:
    return verdict(times(None, memory_ns), Circumstances(1, 100_000, bytes_moved=data, l2_bytes=l2))


def test_data_within_l2_that_beats_dram_is_cached_and_no_wrong_number() -> None:
    kind, evidence, gain = cached(150_000, 30 * MIB, 50 * MIB)
    assert (kind, gain) == ("cache", 0)
    assert evidence == (
        "150.0% of DRAM (measured): the data stays in L2 (30 MiB a call, an L2 of 50 MiB)"
    )


def test_a_row_of_calls_that_were_faster_than_the_rest_says_why() -> None:
    """Half of the calls find their data in L2, the others do not: 75 % of DRAM in all."""
    roof = times(None, 150_000)
    known = Circumstances(2, 200_000, bytes_moved=60 * MIB, l2_bytes=50 * MIB)
    found = classify(roof, known, "")
    assert found.kind == "memory"
    fast = found.bottleneck(times(None, 75_000), calls=1, device_ns=50_000, steps=1)
    assert fast.evidence.startswith("150.0% of DRAM (measured): the data stays in L2 (30 MiB")
    assert fast.gain_ns == 0


def test_data_larger_than_l2_may_lie_there_in_part() -> None:
    """Of 200 MiB at most 100 were there or stay there: 130 % is explained, 250 % is not."""
    kind, evidence, _ = cached(130_000, 200 * MIB, 50 * MIB)
    assert kind == "cache"
    assert "part of the data stays in L2" in evidence
    kind, evidence, _ = cached(250_000, 200 * MIB, 50 * MIB)
    assert kind == "memory"
    assert "peak or count wrong: more than L2 explains" in evidence


def test_without_a_known_l2_faster_than_dram_stays_open() -> None:
    kind, evidence, gain = cached(150_000, 30 * MIB, None)
    assert (kind, gain) == ("memory", 0)
    assert evidence.endswith("peak or count wrong, or the data stays in a cache")


def test_more_than_the_compute_roof_is_flagged_and_not_clipped() -> None:
    kind, evidence, gain = verdict(times(150_000, 20_000), Circumstances(1, 100_000))
    assert (kind, gain) == ("compute", 0)
    assert evidence == "150.0% of bf16 tensor (datasheet, dense): peak or count wrong"


def test_unused_tensor_cores_gain_what_their_roof_is_lower() -> None:
    known = Circumstances(1, 1_000_000, tensor_path=TensorPath("no tensor cores: why", 100_000))
    kind, evidence, gain = verdict(times(800_000, 20_000), known)
    assert (kind, gain) == ("no-tensor", 875_000)
    assert evidence == "80.0% of bf16 tensor (datasheet, dense); no tensor cores: why"


def test_unused_tensor_cores_are_nothing_to_work_that_memory_binds() -> None:
    known = Circumstances(1, 1_000_000, tensor_path=TensorPath("no tensor cores", 100_000))
    assert verdict(times(20_000, 800_000), known)[0] == "memory"


def test_a_lowered_clock_that_explains_most_of_the_loss_is_the_class() -> None:
    """At 1440 of 1800 MHz a fifth of the time is the clock's, of 25 % above the roof."""
    clock = SmClock(1440, ("software power cap",))
    kind, evidence, gain = verdict(times(750_000, 1), Circumstances(1, 1_000_000, clock=clock))
    assert (kind, gain) == ("clock", 200_000)
    assert evidence.endswith("1440 MHz where the roof assumes 1800: software power cap")
    kind, evidence, _ = verdict(times(650_000, 1), Circumstances(1, 1_000_000, clock=clock))
    assert kind == "compute"
    assert "the clock loses 20%: 1440 MHz" in evidence


def test_a_clock_that_nothing_lowered_or_that_binds_nothing_is_no_class() -> None:
    idle = Circumstances(1, 1_000_000, clock=SmClock(1440, ()))
    assert verdict(times(700_000, 1), idle)[0] == "compute"
    capped = Circumstances(1, 1_000_000, clock=SmClock(1440, ("software power cap",)))
    assert verdict(times(1, 700_000), capped)[0] == "memory"


@pytest.mark.parametrize("device_ns", [0, 100])
def test_without_a_roof_or_time_the_class_is_unknown(device_ns: int) -> None:
    unknown = RoofTime(None, ResourceTime(10, DRAM), complete=False)
    roof = times(None, 10) if device_ns == 0 else unknown
    assert verdict(roof, Circumstances(1, device_ns)) == ("unknown", "nobody knows", None)


@given(
    st.floats(0, 2e6),
    st.floats(1, 2e6),
    st.integers(1, 10**6),
    st.integers(1, 20),
    st.integers(1, 1000),
    st.sampled_from([None, SmClock(1440, ("software power cap",))]),
    st.sampled_from([None, TensorPath("no tensor cores", 1000)]),
)
def test_no_class_gains_more_than_the_work_takes(
    compute_ns: float,
    memory_ns: float,
    device_ns: int,
    calls: int,
    blocks: int,
    clock: SmClock | None,
    path: TensorPath | None,
) -> None:
    roof = times(compute_ns, memory_ns)
    known = Circumstances(
        calls, device_ns, grid=grid(blocks), clock=clock, tensor_path=path, l2_bytes=MIB
    )
    found: WorkVerdict = classify(roof, known, "")
    assert found.kind in classes()
    assert classes()[found.kind].has_roof
    assert found.gain_fraction is not None
    assert 0 <= found.gain_fraction <= 1
    assert 0 <= found.lost_fraction <= 1
