"""The least time that ceilings allow: the busiest resource binds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.ceilings import Ceiling, Roof, Unit
from gpuprof.roofline.machine.roof_time import roof_time


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
ROOF = Roof((BF16, FP8, FP32, DRAM), "datasheet")


def test_memory_binds_below_the_ridge_and_compute_above() -> None:
    # The ridge of bf16 is 1e15 / 1e12 = 1000 FLOP a byte.
    below = roof_time([Flops("matmul", "bf16", 999_000)], 1000, ROOF).binding
    above = roof_time([Flops("matmul", "bf16", 1_001_000)], 1000, ROOF).binding
    assert below is not None
    assert above is not None
    assert (below.ceiling, below.ns) == (DRAM, 1.0)
    assert (above.ceiling, above.ns) == (BF16, pytest.approx(1.001))


def test_precisions_of_one_unit_follow_each_other() -> None:
    times = roof_time(
        [Flops("matmul", "bf16", 1_000_000), Flops("matmul", "fp8", 4_000_000)], 1, ROOF
    )
    assert times.compute is not None
    assert times.compute.ns == pytest.approx(1.0 + 2.0)
    assert times.compute.ceiling == FP8


def test_tensor_and_vector_units_work_at_the_same_time() -> None:
    times = roof_time(
        [Flops("matmul", "bf16", 1_000_000), Flops("vector", "fp32", 100_000)], 1, ROOF
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
    assert roof_time(flops, moved, roof).binding is None


def test_vector_work_without_a_ceiling_is_left_to_memory() -> None:
    times = roof_time([Flops("vector", "integer", 10**9)], 1000, ROOF)
    assert times.compute is None
    assert times.binding is not None
    assert times.binding.ceiling == DRAM


def test_work_without_arithmetic_is_bound_by_memory() -> None:
    binding = roof_time((), 2_000_000, ROOF).binding
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
    binding = roof_time(flops, moved, ROOF).binding
    assert binding is not None
    assert binding.ns >= moved / DRAM.rate * 1e9
    for part in flops:
        ceiling = ROOF.compute_rate(part.kind, part.precision)
        assert ceiling is not None
        assert binding.ns >= part.count / ceiling.rate * 1e9
