"""The least time that ceilings allow: the busiest resource binds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.ceilings import Ceiling, Roof, Unit
from gpuprof.roofline.machine.roof_time import Traffic, roof_time


def compute(unit: Unit, precision: str, rate: float) -> Ceiling:
    return Ceiling(
        kind="compute",
        rate=rate,
        source="datasheet",
        reference="test",
        unit=unit,
        precision=precision,
    )


DRAM = Ceiling(kind="memory", rate=1e12, source="datasheet", reference="test", level="DRAM")
BF16 = compute("tensor", "bf16", 1e15)
FP8 = compute("tensor", "fp8", 2e15)
FP32 = compute("vector", "fp32", 5e13)


def moving(moved_bytes: int) -> list[Traffic]:
    return [Traffic(moved_bytes, moved_bytes)]


ROOF = Roof((BF16, FP8, FP32, DRAM), "datasheet")


def test_memory_binds_below_the_ridge_and_compute_above() -> None:
    # The ridge of bf16 is 1e15 / 1e12 = 1000 FLOP a byte.
    below = roof_time([Flops("matmul", "bf16", 999_000)], moving(1000), ROOF).binding
    above = roof_time([Flops("matmul", "bf16", 1_001_000)], moving(1000), ROOF).binding
    assert below is not None
    assert above is not None
    assert (below.ceiling, below.ns) == (DRAM, 1.0)
    assert (above.ceiling, above.ns) == (BF16, pytest.approx(1.001))


def test_precisions_of_one_unit_follow_each_other() -> None:
    times = roof_time(
        [Flops("matmul", "bf16", 1_000_000), Flops("matmul", "fp8", 4_000_000)], moving(1), ROOF
    )
    assert times.compute is not None
    assert times.compute.ns == pytest.approx(1.0 + 2.0)
    assert times.compute.ceiling == FP8


def test_tensor_and_vector_units_work_at_the_same_time() -> None:
    times = roof_time(
        [Flops("matmul", "bf16", 1_000_000), Flops("vector", "fp32", 100_000)], moving(1), ROOF
    )
    assert times.compute is not None
    assert times.compute.ns == pytest.approx(2.0)
    assert times.compute.ceiling == FP32


@pytest.mark.parametrize(
    ("flops", "moved", "roof"),
    [
        (None, 1000, ROOF),
        ((), None, ROOF),
        ((Flops("matmul", "fp64", 10),), 1000, ROOF),
        ((Flops("matmul", "bf16", 10),), 1000, Roof((BF16,), "datasheet")),
        ((Flops("matmul", "bf16", 10),), 1000, None),
    ],
    ids=["flops", "bytes", "precision without a ceiling", "no bandwidth", "no roof"],
)
def test_what_is_unknown_leaves_the_roof_unknown(
    flops: tuple[Flops, ...] | None, moved: int | None, roof: Roof | None
) -> None:
    traffic = None if moved is None else moving(moved)
    assert roof_time(flops, traffic, roof).binding is None


def test_vector_work_without_a_ceiling_is_left_to_memory() -> None:
    times = roof_time([Flops("vector", "integer", 10**9)], moving(1000), ROOF)
    assert times.compute is None
    assert times.binding is not None
    assert times.binding.ceiling == DRAM


def test_work_without_arithmetic_is_bound_by_memory() -> None:
    binding = roof_time((), moving(2_000_000), ROOF).binding
    assert binding is not None
    assert (binding.ns, binding.ceiling) == (2000.0, DRAM)


@given(
    st.lists(
        st.builds(
            Flops,
            st.sampled_from(["matmul", "vector"]),
            st.sampled_from(["bf16", "fp8", "fp32"]),
            st.integers(0, 10**18),
        )
    ),
    st.integers(0, 10**15),
)
def test_the_roof_is_never_below_a_single_resource(flops: list[Flops], moved: int) -> None:
    binding = roof_time(flops, moving(moved), ROOF).binding
    assert binding is not None
    assert binding.ns >= moved / DRAM.rate * 1e9
    for part in flops:
        ceiling = ROOF.compute_rate(part.kind, part.precision)
        assert ceiling is not None
        assert binding.ns >= part.count / ceiling.rate * 1e9


def memory(level: str, rate: float, capacity_bytes: int | None = None) -> Ceiling:
    return Ceiling(
        kind="memory",
        rate=rate,
        source="measured",
        reference="test",
        level=level,
        capacity_bytes=capacity_bytes,
    )


L2, L3 = memory("L2", 2e11, 2_000_000), memory("L3", 1e11, 32_000_000)
MAIN = memory("DRAM", 4e10)
CPU_ROOF = Roof((L2, L3, MAIN), "measured")


@pytest.mark.parametrize(
    ("traffic", "ceiling"),
    [
        # In place: 4 MB move, of 2 MB of data.
        (Traffic.of_calls(2_000_000, 2_000_000, 1), L2),
        (Traffic.of_calls(2_000_004, 2_000_004, 1), L3),
        (Traffic.of_calls(32_000_000, 0, 1), L3),
        (Traffic.of_calls(32_000_004, 0, 1), MAIN),
        # A thousand calls on little data each find it in the cache, in all however much.
        (Traffic.of_calls(10**9, 10**9, 1000), L2),
        (Traffic.of_calls(10**9, 10**9, 1), MAIN),
    ],
)
def test_work_is_compared_with_the_level_that_holds_the_data_of_one_call(
    traffic: Traffic, ceiling: Ceiling
) -> None:
    binding = roof_time((), [traffic], CPU_ROOF).binding
    assert binding is not None
    assert binding.ceiling == ceiling
    assert binding.ns == pytest.approx(traffic.moved_bytes / ceiling.rate * 1e9)


def test_work_of_several_kinds_takes_the_time_of_each_at_its_level() -> None:
    near, far = Traffic(1_000_000, 500_000), Traffic(400_000_000, 200_000_000)
    binding = roof_time((), [near, far], CPU_ROOF).binding
    assert binding is not None
    assert binding.ns == pytest.approx(1_000_000 / 200 + 400_000_000 / 40)
    assert binding.ceiling == MAIN


def test_a_cache_measured_slower_than_a_larger_one_is_no_lower_roof() -> None:
    roof = Roof((memory("L2", 9e10, 2_000_000), L3, MAIN), "measured")
    binding = roof_time((), [Traffic(1000, 1000)], roof).binding
    assert binding is not None
    assert binding.ceiling == L3


def test_a_cache_whose_size_is_unknown_is_no_roof_and_without_dram_there_is_none() -> None:
    on_chip = memory("L2", 8e12)
    binding = roof_time((), [Traffic(1000, 1000)], Roof((on_chip, MAIN), "measured")).binding
    assert binding is not None
    assert binding.ceiling == MAIN
    assert roof_time((), [Traffic(1000, 1000)], Roof((L2,), "measured")).binding is None
